/* ptrace for user-mode Linux 6.1 on processors with AMX.
 *
 * Its buffer for a process's vector registers is smaller than theirs, and the kernel takes only a whole set:
 * "ptrace set fp regs failed, errno = 14". This passes the whole set on; what the buffer has no room for stays. */
#define _GNU_SOURCE
#include <elf.h>
#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { PEEKUSER = 3, GETREGSET = 0x4204, SETREGSET = 0x4205 };

static char whole_set[1 << 14] __attribute__((aligned(64)));

long ptrace(int request, int pid, void *address, void *data) {
  if ((request == GETREGSET || request == SETREGSET) && (long)address == NT_X86_XSTATE) {
    struct iovec *part = data, whole = {whole_set, sizeof whole_set};
    if (syscall(SYS_ptrace, GETREGSET, pid, address, &whole) < 0) return -1;
    size_t length = part->iov_len < whole.iov_len ? part->iov_len : whole.iov_len;
    if (request == GETREGSET) {
      memcpy(part->iov_base, whole_set, length);
      part->iov_len = length;
      return 0;
    }
    memcpy(whole_set, part->iov_base, length);
    return syscall(SYS_ptrace, SETREGSET, pid, address, &whole);
  }
  if (request > 0 && request <= PEEKUSER) { /* the system call stores the word, the library returns it */
    long word, result = syscall(SYS_ptrace, request, pid, address, &word);
    return result < 0 ? -1 : word;
  }
  return syscall(SYS_ptrace, request, pid, address, data);
}
