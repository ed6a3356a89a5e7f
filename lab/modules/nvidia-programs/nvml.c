/* libnvidia-ml.so.1 for GPUs that do not exist: NVIDIA's own device plugin and feature discovery load it and find a machine
 * that looks like theirs. It answers what these two ask for, by NVIDIA's public header (nvml.h as go-nvml has it, with
 * handles in structs), which the build includes and this repository does not contain. A function that is missing here ends the program that
 * calls it, with the function's name: add it then.
 *
 * What the machine is like stands in the folder nvml.d beside the library. The simulated driver writes it:
 *
 *   profile   8xa100-80gb, 8xh100, 4xt4 or none
 *   node      the node's name, from which the UUIDs follow
 *   init      the number of an nvmlReturn_t that nvmlInit returns, such as 18: the driver has another version
 *   events    one line "GPU XID" for each error, added while programs listen; earlier ones are over
 *   lost      the numbers of the GPUs that fell off the bus
 *   mig       one line "GPU PROFILE" for each instance of a GPU that is split by MIG, such as "0 3g.40gb"
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "nvml.h"

#define DRIVER "580.95.05"
#define CUDA 13000 /* 13.0 */
#define MIB (1024ull * 1024)
#define MOST 8
#define PARTS 7 /* of one GPU */
#define WHOLE 0xFFFFFFFFu /* no MIG instance */

struct profile {
    const char *name;
    unsigned int count;
    const char *product;
    unsigned long long memory_mib;
    int major, minor; /* of the compute capability */
    nvmlDeviceArchitecture_t architecture;
    nvmlBrandType_t brand;
    unsigned int pci; /* device and vendor */
    int can_mig;
};

static const struct profile PROFILES[] = {
    {"8xa100-80gb", 8, "NVIDIA A100-SXM4-80GB", 81920, 8, 0, NVML_DEVICE_ARCH_AMPERE, NVML_BRAND_NVIDIA, 0x20B210DE, 1},
    {"8xh100", 8, "NVIDIA H100 80GB HBM3", 81559, 9, 0, NVML_DEVICE_ARCH_HOPPER, NVML_BRAND_NVIDIA, 0x233010DE, 1},
    {"4xt4", 4, "Tesla T4", 15360, 7, 5, NVML_DEVICE_ARCH_TURING, NVML_BRAND_TESLA, 0x1EB810DE, 0},
    {"none", 0, "", 0, 0, 0, NVML_DEVICE_ARCH_UNKNOWN, NVML_BRAND_UNKNOWN, 0, 0},
};

/* What MIG makes of the 80 GB of an A100 or H100. */
struct part {
    const char *name;
    unsigned int profile; /* NVML_GPU_INSTANCE_PROFILE_…; NVML_COMPUTE_INSTANCE_PROFILE_… has the same numbers */
    unsigned int id, slices, processors;
    unsigned long long memory_mib;
};

static const struct part KINDS[] = {
    {"1g.10gb", NVML_GPU_INSTANCE_PROFILE_1_SLICE, 19, 1, 14, 9728},
    {"2g.20gb", NVML_GPU_INSTANCE_PROFILE_2_SLICE, 14, 2, 28, 19968},
    {"3g.40gb", NVML_GPU_INSTANCE_PROFILE_3_SLICE, 9, 3, 42, 40192},
    {"4g.40gb", NVML_GPU_INSTANCE_PROFILE_4_SLICE, 5, 4, 56, 40192},
    {"7g.80gb", NVML_GPU_INSTANCE_PROFILE_7_SLICE, 0, 7, 98, 81152},
};

/* A GPU, or an instance of one; then it stands for its GPU instance and for the one compute instance in it, too. */
struct nvmlDevice_st {
    char uuid[NVML_DEVICE_UUID_V2_BUFFER_SIZE];
    const struct part *part; /* NULL: a whole GPU */
    unsigned int gpu, instance;
};

struct nvmlEventSet_st {
    long read;            /* bytes of `events` that were there already */
    unsigned char of[MOST]; /* the GPUs whose errors are asked for */
};

static const struct profile *machine; /* NULL: not initialized */
static unsigned int inits;
static struct nvmlDevice_st gpus[MOST], parts[MOST * PARTS];
static unsigned int parted; /* how many of `parts` there are */

/* Opens a file of nvml.d, wherever the library was loaded from; NULL if there is none. */
static FILE *state(const char *name) {
    Dl_info about;
    char path[PATH_MAX];
    if (!dladdr((void *)&state, &about) || !about.dli_fname)
        return NULL;
    const char *slash = strrchr(about.dli_fname, '/');
    int folder = slash ? (int)(slash - about.dli_fname) : 0;
    int length = snprintf(path, sizeof path, "%.*s/nvml.d/%s", folder, about.dli_fname, name);
    return length < (int)sizeof path ? fopen(path, "re") : NULL;
}

/* The first word of a file of nvml.d, or "". */
static const char *word(const char *name, char text[64]) {
    FILE *file = state(name);
    if (!file || fscanf(file, "%63s", text) != 1)
        text[0] = '\0';
    if (file)
        fclose(file);
    return text;
}

static unsigned int number_of(nvmlDevice_t device) { return device.handle->gpu; }

static int is_gpu(const struct nvmlDevice_st *device) { return device >= gpus && device < gpus + machine->count; }

static int is_part(const struct nvmlDevice_st *device) { return device >= parts && device < parts + parted; }

static int is_lost(unsigned int gpu) {
    FILE *file = state("lost");
    unsigned int lost;
    int found = 0;
    while (file && !found && fscanf(file, "%u", &lost) == 1)
        found = lost == gpu;
    if (file)
        fclose(file);
    return found;
}

/* What every function about a GPU answers before it looks further. */
static nvmlReturn_t check(nvmlDevice_t device, const void *answer) {
    if (!machine)
        return NVML_ERROR_UNINITIALIZED;
    if (!answer || !(is_gpu(device.handle) || is_part(device.handle)))
        return NVML_ERROR_INVALID_ARGUMENT;
    return is_lost(number_of(device)) ? NVML_ERROR_GPU_IS_LOST : NVML_SUCCESS;
}

#define REFUSE_UNLESS_USABLE(device, answer)              \
    do {                                                  \
        nvmlReturn_t checked = check((device), (answer)); \
        if (checked != NVML_SUCCESS)                      \
            return checked;                               \
    } while (0)

static nvmlReturn_t copy(const char *text, char *target, unsigned int length) {
    if (strlen(text) >= length)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(target, text);
    return NVML_SUCCESS;
}

/* A UUID of the node's name and the device's numbers: the same after each start, another one on each node (FNV-1a, twice). */
static void name(struct nvmlDevice_st *device, const char *node) {
    unsigned int number = device->gpu + 1 + MOST * device->instance;
    unsigned long long half[2] = {14695981039346656037ull, 1099511628211ull};
    for (int i = 0; i < 2; i++) {
        for (const char *c = node; *c; c++)
            half[i] = (half[i] ^ (unsigned char)*c) * 1099511628211ull;
        half[i] = (half[i] ^ number) * 1099511628211ull;
        half[i] ^= half[i] >> 29;
    }
    snprintf(device->uuid, sizeof device->uuid, "%s-%08x-%04x-%04x-%04x-%012llx", device->part ? "MIG" : "GPU",
             (unsigned int)(half[0] >> 32), (unsigned int)(half[0] >> 16 & 0xffff), (unsigned int)(half[0] & 0xffff),
             (unsigned int)(half[1] >> 48), half[1] & 0xffffffffffffull);
}

static unsigned int parts_of(unsigned int gpu) {
    unsigned int count = 0;
    for (unsigned int i = 0; i < parted; i++)
        count += parts[i].gpu == gpu;
    return count;
}

static void read_parts(const char *node) {
    FILE *file = state("mig");
    unsigned int gpu;
    char text[64];
    parted = 0;
    while (file && fscanf(file, "%u %63s", &gpu, text) == 2)
        for (size_t i = 0; i < sizeof KINDS / sizeof *KINDS; i++)
            if (!strcmp(KINDS[i].name, text) && machine->can_mig && gpu < machine->count && parts_of(gpu) < PARTS) {
                struct nvmlDevice_st *part = &parts[parted];
                *part = (struct nvmlDevice_st){.part = &KINDS[i], .gpu = gpu, .instance = parts_of(gpu) + 1};
                parted++;
                name(part, node);
            }
    if (file)
        fclose(file);
}

/* Where the kernel's module would list the instances, for programs that may mount something there. */
static void list_parts(void) {
    const char *folder = "/proc/driver/nvidia-caps";
    unsigned int minor = 3;
    if (!parted || (access(folder, F_OK) && (mount("tmpfs", "/proc/driver", "tmpfs", 0, NULL) || mkdir(folder, 0755))))
        return;
    FILE *file = fopen("/proc/driver/nvidia-caps/mig-minors", "we");
    if (!file)
        return;
    fputs("config 1\nmonitor 2\n", file);
    for (unsigned int i = 0; i < parted; i++, minor += 2)
        fprintf(file, "gpu%u/gi%u/access %u\ngpu%u/gi%u/ci0/access %u\n", parts[i].gpu, parts[i].instance, minor,
                parts[i].gpu, parts[i].instance, minor + 1);
    fclose(file);
}

nvmlReturn_t nvmlInitWithFlags(unsigned int flags) {
    char text[64];
    (void)flags;
    int refused = atoi(word("init", text));
    if (refused)
        return (nvmlReturn_t)refused;
    if (inits++)
        return NVML_SUCCESS;
    word("profile", text);
    for (size_t i = 0; i < sizeof PROFILES / sizeof *PROFILES; i++)
        if (!strcmp(PROFILES[i].name, text))
            machine = &PROFILES[i];
    if (!machine) {
        inits = 0;
        return NVML_ERROR_DRIVER_NOT_LOADED;
    }
    word("node", text);
    for (unsigned int gpu = 0; gpu < machine->count; gpu++) {
        gpus[gpu] = (struct nvmlDevice_st){.gpu = gpu};
        name(&gpus[gpu], text);
    }
    read_parts(text);
    list_parts();
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

nvmlReturn_t nvmlShutdown(void) {
    if (!inits)
        return NVML_ERROR_UNINITIALIZED;
    if (!--inits)
        machine = NULL;
    return NVML_SUCCESS;
}

/* The texts of NVIDIA's library, of the errors that this one returns; the role looks for some of them. */
const char *nvmlErrorString(nvmlReturn_t result) {
    switch (result) {
    case NVML_SUCCESS: return "Success";
    case NVML_ERROR_UNINITIALIZED: return "Uninitialized";
    case NVML_ERROR_INVALID_ARGUMENT: return "Invalid Argument";
    case NVML_ERROR_NOT_SUPPORTED: return "Not Supported";
    case NVML_ERROR_NO_PERMISSION: return "Insufficient Permissions";
    case NVML_ERROR_NOT_FOUND: return "Not Found";
    case NVML_ERROR_INSUFFICIENT_SIZE: return "Insufficient Size";
    case NVML_ERROR_DRIVER_NOT_LOADED: return "Driver Not Loaded";
    case NVML_ERROR_TIMEOUT: return "Timeout";
    case NVML_ERROR_GPU_IS_LOST: return "GPU is lost";
    case NVML_ERROR_LIB_RM_VERSION_MISMATCH: return "Driver/library version mismatch";
    default: return "Unknown Error";
    }
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length) { return copy(DRIVER, version, length); }

nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length) { return copy("13." DRIVER, version, length); }

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version) {
    *version = CUDA;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count) {
    if (!machine)
        return NVML_ERROR_UNINITIALIZED;
    *count = machine->count;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device) {
    if (!machine)
        return NVML_ERROR_UNINITIALIZED;
    if (index >= machine->count)
        return NVML_ERROR_INVALID_ARGUMENT;
    device->handle = &gpus[index];
    return check(*device, device);
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
    if (!machine)
        return NVML_ERROR_UNINITIALIZED;
    for (unsigned int gpu = 0; gpu < machine->count; gpu++)
        if (!strcmp(uuid, gpus[gpu].uuid))
            return nvmlDeviceGetHandleByIndex_v2(gpu, device);
    for (unsigned int i = 0; i < parted; i++)
        if (!strcmp(uuid, parts[i].uuid)) {
            device->handle = &parts[i];
            return check(*device, device);
        }
    return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length) {
    REFUSE_UNLESS_USABLE(device, uuid);
    return copy(device.handle->uuid, uuid, length);
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length) {
    char text[NVML_DEVICE_NAME_V2_BUFFER_SIZE];
    REFUSE_UNLESS_USABLE(device, name);
    const struct part *part = device.handle->part;
    snprintf(text, sizeof text, part ? "%s MIG %s" : "%s", machine->product, part ? part->name : "");
    return copy(text, name, length);
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index) {
    REFUSE_UNLESS_USABLE(device, index);
    *index = number_of(device);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minor) {
    return nvmlDeviceGetIndex(device, minor);
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci) {
    REFUSE_UNLESS_USABLE(device, pci);
    memset(pci, 0, sizeof *pci);
    pci->bus = 0x10 * (number_of(device) + 1);
    pci->pciDeviceId = machine->pci;
    snprintf(pci->busId, sizeof pci->busId, "00000000:%02X:00.0", pci->bus);
    snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "0000:%02X:00.0", pci->bus);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
    REFUSE_UNLESS_USABLE(device, memory);
    memory->total = memory->free = (device.handle->part ? device.handle->part->memory_mib : machine->memory_mib) * MIB;
    memory->used = 0;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor) {
    REFUSE_UNLESS_USABLE(device, major);
    *major = machine->major;
    *minor = machine->minor;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device, nvmlDeviceArchitecture_t *architecture) {
    REFUSE_UNLESS_USABLE(device, architecture);
    *architecture = machine->architecture;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetBrand(nvmlDevice_t device, nvmlBrandType_t *brand) {
    REFUSE_UNLESS_USABLE(device, brand);
    *brand = machine->brand;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *mode, unsigned int *pending) {
    REFUSE_UNLESS_USABLE(device, mode);
    *mode = *pending = parts_of(number_of(device)) ? NVML_DEVICE_MIG_ENABLE : NVML_DEVICE_MIG_DISABLE;
    return machine->can_mig ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count) {
    REFUSE_UNLESS_USABLE(device, count);
    *count = machine->can_mig ? PARTS : 0;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *is) {
    REFUSE_UNLESS_USABLE(device, is);
    *is = device.handle->part != NULL;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index, nvmlDevice_t *part) {
    REFUSE_UNLESS_USABLE(device, part);
    for (unsigned int i = 0; i < parted; i++)
        if (parts[i].gpu == number_of(device) && parts[i].instance == index + 1) {
            part->handle = &parts[i];
            return NVML_SUCCESS;
        }
    return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t part, nvmlDevice_t *device) {
    REFUSE_UNLESS_USABLE(part, device);
    return part.handle->part ? nvmlDeviceGetHandleByIndex_v2(number_of(part), device) : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned int *id) {
    REFUSE_UNLESS_USABLE(device, id);
    *id = device.handle->instance;
    return device.handle->part ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned int *id) {
    REFUSE_UNLESS_USABLE(device, id);
    *id = 0;
    return device.handle->part ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *attributes) {
    REFUSE_UNLESS_USABLE(device, attributes);
    const struct part *part = device.handle->part;
    if (!part)
        return NVML_ERROR_NOT_SUPPORTED;
    *attributes = (nvmlDeviceAttributes_t){.multiprocessorCount = part->processors,
                                           .gpuInstanceSliceCount = part->slices,
                                           .computeInstanceSliceCount = part->slices,
                                           .memorySizeMB = part->memory_mib};
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t device, unsigned int profile,
                                                 nvmlGpuInstanceProfileInfo_t *info) {
    REFUSE_UNLESS_USABLE(device, info);
    for (size_t i = 0; machine->can_mig && i < sizeof KINDS / sizeof *KINDS; i++)
        if (KINDS[i].profile == profile) {
            *info = (nvmlGpuInstanceProfileInfo_t){.id = KINDS[i].id,
                                                   .sliceCount = KINDS[i].slices,
                                                   .instanceCount = PARTS / KINDS[i].slices,
                                                   .multiprocessorCount = KINDS[i].processors,
                                                   .memorySizeMB = KINDS[i].memory_mib};
            return NVML_SUCCESS;
        }
    return NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t device, unsigned int id, nvmlGpuInstance_t *instance) {
    nvmlDevice_t part;
    nvmlReturn_t result = nvmlDeviceGetMigDeviceHandleByIndex(device, id - 1, &part);
    if (result == NVML_SUCCESS)
        instance->handle = (struct nvmlGpuInstance_st *)part.handle;
    return result;
}

nvmlReturn_t nvmlGpuInstanceGetInfo(nvmlGpuInstance_t instance, nvmlGpuInstanceInfo_t *info) {
    const struct nvmlDevice_st *part = (struct nvmlDevice_st *)instance.handle;
    *info = (nvmlGpuInstanceInfo_t){.device = {&gpus[part->gpu]}, .id = part->instance, .profileId = part->part->id};
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceById(nvmlGpuInstance_t instance, unsigned int id,
                                                   nvmlComputeInstance_t *compute) {
    compute->handle = (struct nvmlComputeInstance_st *)instance.handle;
    return id ? NVML_ERROR_NOT_FOUND : NVML_SUCCESS;
}

nvmlReturn_t nvmlComputeInstanceGetInfo_v2(nvmlComputeInstance_t compute, nvmlComputeInstanceInfo_t *info) {
    const struct nvmlDevice_st *part = (struct nvmlDevice_st *)compute.handle;
    *info = (nvmlComputeInstanceInfo_t){.device = {&gpus[part->gpu]},
                                        .gpuInstance = {(struct nvmlGpuInstance_st *)compute.handle},
                                        .profileId = part->part->profile};
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfo(nvmlGpuInstance_t instance, unsigned int profile,
                                                          unsigned int engines, nvmlComputeInstanceProfileInfo_t *info) {
    const struct part *part = ((struct nvmlDevice_st *)instance.handle)->part;
    if (engines || profile != part->profile)
        return NVML_ERROR_NOT_SUPPORTED;
    *info = (nvmlComputeInstanceProfileInfo_t){
        .id = profile, .sliceCount = part->slices, .instanceCount = 1, .multiprocessorCount = part->processors};
    return NVML_SUCCESS;
}

/* Two sockets, half of the GPUs at each, as in a DGX. */
nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t one, nvmlDevice_t other, nvmlGpuTopologyLevel_t *level) {
    REFUSE_UNLESS_USABLE(one, level);
    REFUSE_UNLESS_USABLE(other, level);
    unsigned int half = machine->count / 2;
    *level = (number_of(one) < half) == (number_of(other) < half) ? NVML_TOPOLOGY_NODE : NVML_TOPOLOGY_SYSTEM;
    return NVML_SUCCESS;
}

/* No NVLink leads to another GPU: on machines with these products all lead to switches. */
nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int link, nvmlEnableState_t *active) {
    (void)link;
    REFUSE_UNLESS_USABLE(device, active);
    return NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *types) {
    REFUSE_UNLESS_USABLE(device, types);
    *types = nvmlEventTypeXidCriticalError;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set) {
    if (!machine)
        return NVML_ERROR_UNINITIALIZED;
    set->handle = calloc(1, sizeof *set->handle);
    if (!set->handle)
        return NVML_ERROR_MEMORY;
    FILE *file = state("events");
    if (file) {
        if (!fseek(file, 0, SEEK_END))
            set->handle->read = ftell(file);
        fclose(file);
    }
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set) {
    free(set.handle);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, nvmlEventSet_t set) {
    REFUSE_UNLESS_USABLE(device, set.handle);
    set.handle->of[number_of(device)] = (types & nvmlEventTypeXidCriticalError) != 0;
    return NVML_SUCCESS;
}

/* Reads the next complete line of `events`; returns whether it is about a GPU of the set. */
static int next_event(nvmlEventSet_t set, nvmlEventData_t *data) {
    char line[64];
    unsigned int gpu, xid;
    int ours = 0;
    FILE *file = state("events");
    if (!file)
        return 0;
    if (!fseek(file, set.handle->read, SEEK_SET))
        while (!ours && fgets(line, sizeof line, file) && strchr(line, '\n')) {
            set.handle->read += (long)strlen(line);
            ours = sscanf(line, "%u %u", &gpu, &xid) == 2 && gpu < machine->count && set.handle->of[gpu];
        }
    fclose(file);
    if (ours)
        *data = (nvmlEventData_t){{&gpus[gpu]}, nvmlEventTypeXidCriticalError, xid, WHOLE, WHOLE};
    return ours;
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout_ms) {
    const struct timespec pause = {0, 100 * 1000 * 1000};
    if (!machine)
        return NVML_ERROR_UNINITIALIZED;
    for (unsigned int waited_ms = 0;; waited_ms += 100) {
        if (next_event(set, data))
            return NVML_SUCCESS;
        if (waited_ms >= timeout_ms)
            return NVML_ERROR_TIMEOUT;
        nanosleep(&pause, NULL);
    }
}
