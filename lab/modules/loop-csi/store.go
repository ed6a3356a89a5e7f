package main

import (
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/mount-utils"
)

const (
	volumes   = "volumes"   // a file per volume, named by its id
	snapshots = "snapshots" // a folder per snapshot, named by its id, with one file, named by its volume
	drafts    = "drafts"    // what is renamed once it is complete
	smallest  = 300 << 20   // of an XFS file system
	kind      = "xfs"       // ext4 grows online only for processes with CAP_SYS_RESOURCE, which a lab's may lack

	fiFreeze = 0xc0045877 // FIFREEZE and FITHAW of linux/fs.h, which x/sys/unix lacks
	fiThaw   = 0xc0045878
)

// ids are names of the orchestrator's choice, and names of files here.
var ids = regexp.MustCompile(`^[A-Za-z0-9][-A-Za-z0-9_.]{0,127}$`)

// store is the folder with all volumes and snapshots; nodes may share it.
type store struct {
	folder  string
	mounter mount.Interface
	mutex   sync.Mutex
	busy    map[string]bool
}

func newStore(folder string) (*store, error) {
	for _, part := range []string{volumes, snapshots, drafts} {
		if err := os.MkdirAll(filepath.Join(folder, part), 0o700); err != nil {
			return nil, err
		}
	}
	return &store{folder: folder, mounter: mount.New(""), busy: map[string]bool{}}, nil
}

// hold refuses ids that name nothing here, and a second call for what another is at work on, as the specification
// demands. It holds all or none; a volume and its snapshot may have the same name.
func (s *store) hold(held ...string) (release func(), err error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for _, id := range held {
		if id == "" {
			return nil, status.Error(codes.InvalidArgument, "got no id or name, expected one")
		}
		if !ids.MatchString(id) {
			return nil, none(id)
		}
		if s.busy[id] {
			return nil, status.Errorf(codes.Aborted, "%s: another call is at work on it", id)
		}
	}
	for _, id := range held {
		s.busy[id] = true
	}
	return func() {
		s.mutex.Lock()
		defer s.mutex.Unlock()
		for _, id := range held {
			delete(s.busy, id)
		}
	}, nil
}

func (s *store) volume(id string) string { return filepath.Join(s.folder, volumes, id) }

func none(id string) error {
	return status.Errorf(codes.NotFound, "got no volume or snapshot %q, expected one", id)
}

// size is that of a volume; NotFound if there is none.
func (s *store) size(id string) (int64, error) {
	if !ids.MatchString(id) {
		return 0, none(id)
	}
	about, err := os.Stat(s.volume(id))
	if errors.Is(err, os.ErrNotExist) {
		return 0, none(id)
	} else if err != nil {
		return 0, err
	}
	return about.Size(), nil
}

// snapshot finds the one file of a snapshot; a nil error and "" if there is none.
func (s *store) snapshot(id string) (string, os.FileInfo, error) {
	if !ids.MatchString(id) {
		return "", nil, none(id)
	}
	entries, err := os.ReadDir(filepath.Join(s.folder, snapshots, id))
	if errors.Is(err, os.ErrNotExist) || err == nil && len(entries) == 0 {
		return "", nil, nil
	} else if err != nil {
		return "", nil, err
	}
	about, err := entries[0].Info()
	return filepath.Join(s.folder, snapshots, id, entries[0].Name()), about, err
}

// draft makes a file that nobody sees until it is renamed: of a new file system, or of the content of `source`.
func (s *store) draft(id, source string, size int64) (string, error) {
	path := filepath.Join(s.folder, drafts, id)
	file, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600)
	if err != nil {
		return "", err
	}
	defer file.Close()
	if source != "" {
		if err := copyInto(file, source); err != nil {
			return path, full(err)
		}
	}
	if err := reserve(file, size); err != nil {
		return path, err
	}
	if source == "" {
		err = command("mkfs.xfs", "-q", "-f", path)
	}
	return path, errors.Join(err, file.Sync())
}

// rename gives a draft its name, which a power cut does not take back: the cluster counts on what was answered.
func rename(draft, name string) error {
	if err := os.Rename(draft, name); err != nil {
		return err
	}
	folder, err := os.Open(filepath.Dir(name))
	if err != nil {
		return err
	}
	defer folder.Close()
	return folder.Sync()
}

// reserve makes a file as large as `size`, and its space nobody else's.
func reserve(file *os.File, size int64) error {
	return full(unix.Fallocate(int(file.Fd()), 0, 0, size))
}

// full turns "no space left" into the code upon which another node is tried.
func full(err error) error {
	if errors.Is(err, unix.ENOSPC) {
		return status.Error(codes.ResourceExhausted, "got a folder without space for the volume, expected it")
	}
	return err
}

// copyInto copies what a file has, not its holes: by reference, if its file system can.
func copyInto(file *os.File, path string) error {
	source, err := os.Open(path)
	if err != nil {
		return err
	}
	defer source.Close()
	if unix.IoctlFileClone(int(file.Fd()), int(source.Fd())) == nil {
		return nil
	}
	about, err := source.Stat()
	if err != nil {
		return err
	}
	if err := file.Truncate(about.Size()); err != nil {
		return err
	}
	for end := int64(0); ; {
		start, err := source.Seek(end, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) { // the rest is a hole
			return nil
		} else if err != nil {
			return err
		}
		if end, err = source.Seek(start, unix.SEEK_HOLE); err != nil {
			return err
		}
		from := io.NewSectionReader(source, start, end-start)
		if _, err := io.Copy(io.NewOffsetWriter(file, start), from); err != nil {
			return err
		}
	}
}

// device is the loop device over a volume on this machine; "" if there is none.
func (s *store) device(id string) (string, error) {
	out, err := exec.Command("losetup", "--noheadings", "--output", "NAME", "--associated", s.volume(id)).Output()
	return strings.TrimSpace(string(out)), err
}

// staged is where a volume is mounted; "" if it is not.
func (s *store) staged(id string) (string, error) {
	device, err := s.device(id)
	if err != nil || device == "" {
		return "", err
	}
	points, err := s.mounter.List()
	if err != nil {
		return "", err
	}
	for _, point := range points {
		if point.Device == device {
			return point.Path, nil
		}
	}
	return "", nil
}

// frozen calls `work` while nothing can write to a volume; whoever tries waits.
func (s *store) frozen(id string, work func() error) error {
	path, err := s.staged(id)
	if err != nil {
		return err
	}
	if path == "" {
		return work()
	}
	if err := freeze(path, fiFreeze); err != nil {
		return fmt.Errorf("freeze %s: %w", path, err)
	}
	err = work()
	return errors.Join(err, freeze(path, fiThaw))
}

// thaw ends what a process that was killed had frozen.
func (s *store) thaw() error {
	entries, err := os.ReadDir(filepath.Join(s.folder, volumes))
	for _, entry := range entries {
		path, err := s.staged(entry.Name())
		if err != nil {
			return err
		}
		if path != "" && freeze(path, fiThaw) == nil {
			log.Printf("%s was frozen", entry.Name())
		}
	}
	return err
}

func freeze(path string, request uint) error {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	defer folder.Close()
	return unix.IoctlSetInt(int(folder.Fd()), request, 0)
}

// command runs a program and returns what it printed, if it fails.
func command(words ...string) error {
	if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(words, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
