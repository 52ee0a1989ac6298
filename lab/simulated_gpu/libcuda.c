/* Copyright (c) 2026, The sparkgate.blackwell authors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * A libcuda.so.1 that has no GPU and answers from a scenario file. It is as strict about the order of calls and about
 * their arguments as the probe needs it to be, so that a probe with a mistake does not pass here.
 */

#define _GNU_SOURCE
#include "scenario.h"

enum {
    INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, INVALID_DEVICE = 101, NO_DEVICE = 100, INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201, UNSUPPORTED_PTX_VERSION = 222, INVALID_HANDLE = 400, NOT_FOUND = 500, ILLEGAL_ADDRESS = 700
};

#define DEVICES 64
#define BLOCKS 64

struct module { char entry[64]; unsigned value; };

static int initialised;
static char contexts[DEVICES];
static _Thread_local char *current;
static struct { unsigned *memory; size_t size; } blocks[BLOCKS];

#ifdef COMPAT_NOTE
/* As the libraries for forward compatibility have it. */
static const struct { unsigned owner_size, size, kind; char owner[20], text[sizeof COMPAT_NOTE - 1]; } note
    __attribute__((section(".note.cuda.fwd_compatibility"), used, aligned(4)))
    = { 19, sizeof COMPAT_NOTE - 1, 1, "NVIDIA Corporation", COMPAT_NOTE };
#endif

#define STARTED()                   \
    do {                            \
        CALL();                     \
        if (!initialised)           \
            return NOT_INITIALIZED; \
    } while (0)
#define ON_DEVICE(device)                               \
    do {                                                \
        STARTED();                                      \
        if ((device) < 0 || (device) >= device_count()) \
            return INVALID_DEVICE;                      \
    } while (0)
#define IN_CONTEXT()                \
    do {                            \
        STARTED();                  \
        if (!current)               \
            return INVALID_CONTEXT; \
    } while (0)

static int block_of(unsigned long long address)
{
    for (int i = 0; i < BLOCKS; i++)
        if (blocks[i].memory && (unsigned long long)(size_t)blocks[i].memory == address)
            return i;
    return -1;
}

static int copy_text(char *to, int size, const char *text)
{
    if (size <= (int)strlen(text))
        return INVALID_VALUE;
    strcpy(to, text);
    return 0;
}

int cuDriverGetVersion(int *version)
{
    CALL();
    *version = version_number("cuda_version", 1000, 10);
    return 0;
}

int cuInit(unsigned flags)
{
    CALL();
    if (flags)
        return INVALID_VALUE;
    if (!device_count())
        return NO_DEVICE;
    initialised = 1;
    return 0;
}

int cuGetErrorName(int code, const char **name)
{
    static const struct { int code; const char *name; } names[] = {
        { 0, "CUDA_SUCCESS" }, { INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE" },
        { OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY" }, { NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED" },
        { NO_DEVICE, "CUDA_ERROR_NO_DEVICE" }, { INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE" },
        { INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE" }, { INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT" },
        { UNSUPPORTED_PTX_VERSION, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION" },
        { INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE" }, { NOT_FOUND, "CUDA_ERROR_NOT_FOUND" },
        { ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS" }, { 803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH" },
        { 804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE" }, { 999, "CUDA_ERROR_UNKNOWN" },
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].code == code) {
            *name = names[i].name;
            return 0;
        }
    *name = NULL;
    return INVALID_VALUE;
}

int cuDeviceGetCount(int *count)
{
    STARTED();
    *count = device_count();
    return 0;
}

int cuDeviceGet(int *device, int index)
{
    ON_DEVICE(index);
    *device = index;
    return 0;
}

int cuDeviceGetName(char *name, int size, int device)
{
    ON_DEVICE(device);
    return copy_text(name, size, of_device(device, "name"));
}

int cuDeviceGetUuid_v2(unsigned char *uuid, int device)
{
    ON_DEVICE(device);
    const char *text = of_device(device, "uuid") + strlen("GPU-");
    for (int i = 0; i < 16; i++, text += 2) {
        text += *text == '-';
        if (sscanf(text, "%2hhx", &uuid[i]) != 1)
            return INVALID_VALUE;
    }
    return 0;
}

int cuDeviceGetUuid(unsigned char *uuid, int device)
{
    CALL();
    return cuDeviceGetUuid_v2(uuid, device);
}

int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    ON_DEVICE(device);
    int major = 0, minor = 0;
    sscanf(of_device(device, "compute_capability"), "%d.%d", &major, &minor);
    switch (attribute) {
    case 18: *value = atoi(of_device(device, "integrated")); return 0;
    case 75: *value = major; return 0;
    case 76: *value = minor; return 0;
    default: return INVALID_VALUE;
    }
}

int cuDeviceTotalMem_v2(size_t *size, int device)
{
    ON_DEVICE(device);
    *size = strtoull(of_device(device, "memory_bytes"), NULL, 10);
    return 0;
}

int cuDeviceGetPCIBusId(char *text, int size, int device)
{
    ON_DEVICE(device);
    /* The scenario has a domain of eight digits, as NVML does; this library writes four. */
    const char *whole = of_device(device, "bus_id");
    return copy_text(text, size, strncmp(whole, "0000", 4) ? whole : whole + 4);
}

int cuDevicePrimaryCtxRetain(void **context, int device)
{
    ON_DEVICE(device);
    *context = &contexts[device];
    return 0;
}

int cuDevicePrimaryCtxRelease_v2(int device)
{
    ON_DEVICE(device);
    if (current == &contexts[device])
        current = NULL;
    return 0;
}

int cuDevicePrimaryCtxRelease(int device)
{
    CALL();
    return cuDevicePrimaryCtxRelease_v2(device);
}

int cuCtxSetCurrent(void *context)
{
    STARTED();
    if (context && ((char *)context < contexts || (char *)context >= contexts + device_count()))
        return INVALID_CONTEXT;
    current = context;
    return 0;
}

int cuCtxCreate_v2(void **context, unsigned flags, int device)
{
    (void)flags;
    ON_DEVICE(device);
    *context = current = &contexts[device];
    return 0;
}

int cuModuleLoadData(void **module, const void *image)
{
    IN_CONTEXT();
    int major, minor;
    const char *version = strstr(image, ".version "), *entry = strstr(image, ".entry "), *move = strstr(image, "mov.u32 ");
    struct module *made = calloc(1, sizeof *made);
    if (!made)
        return OUT_OF_MEMORY;
    int code = INVALID_IMAGE;
    if (version && entry && move && sscanf(version, ".version %d.%d", &major, &minor) == 2
        && sscanf(entry, ".entry %63[A-Za-z0-9_]", made->entry) == 1
        && sscanf(move, "mov.u32 %*[^,], %u", &made->value) == 1)
        code = major * 1000 + minor > version_number("ptx_version", 1000, 1) ? UNSUPPORTED_PTX_VERSION : 0;
    if (code) {
        free(made);
        return code;
    }
    if (setting("kernel_writes"))
        made->value = (unsigned)atoi(setting("kernel_writes"));
    *module = made;
    return 0;
}

int cuModuleLoadDataEx(void **module, const void *image, unsigned count, int *options, void **values)
{
    (void)count, (void)options, (void)values;
    CALL();
    return cuModuleLoadData(module, image);
}

int cuModuleGetFunction(void **function, void *module, const char *name)
{
    IN_CONTEXT();
    if (!module)
        return INVALID_HANDLE;
    if (strcmp(((struct module *)module)->entry, name))
        return NOT_FOUND;
    *function = module;
    return 0;
}

int cuModuleUnload(void *module)
{
    IN_CONTEXT();
    if (!module)
        return INVALID_HANDLE;
    free(module);
    return 0;
}

int cuMemAlloc_v2(unsigned long long *address, size_t size)
{
    IN_CONTEXT();
    for (int i = 0; size && i < BLOCKS; i++)
        if (!blocks[i].memory) {
            blocks[i].memory = malloc(size + sizeof(unsigned));
            if (!blocks[i].memory)
                return OUT_OF_MEMORY;
            /* Memory that nobody has written must not hold the right answer. */
            memset(blocks[i].memory, 0xa5, size);
            blocks[i].size = size;
            *address = (size_t)blocks[i].memory;
            return 0;
        }
    return size ? OUT_OF_MEMORY : INVALID_VALUE;
}

int cuMemFree_v2(unsigned long long address)
{
    IN_CONTEXT();
    int block = block_of(address);
    if (block < 0)
        return INVALID_VALUE;
    free(blocks[block].memory);
    blocks[block].memory = NULL;
    return 0;
}

int cuMemsetD32_v2(unsigned long long address, unsigned value, size_t count)
{
    IN_CONTEXT();
    int block = block_of(address);
    if (block < 0 || count > blocks[block].size / sizeof value)
        return INVALID_VALUE;
    for (size_t i = 0; i < count; i++)
        blocks[block].memory[i] = value;
    return 0;
}

int cuMemcpyDtoH_v2(void *to, unsigned long long address, size_t size)
{
    IN_CONTEXT();
    int block = block_of(address);
    if (block < 0 || size > blocks[block].size)
        return INVALID_VALUE;
    memcpy(to, blocks[block].memory, size);
    return 0;
}

int cuLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                   unsigned block_y, unsigned block_z, unsigned shared, void *stream, void **parameters, void **extra)
{
    IN_CONTEXT();
    if (!function)
        return INVALID_HANDLE;
    if (!grid_x || !grid_y || !grid_z || !block_x || !block_y || !block_z || shared || stream || extra || !parameters)
        return INVALID_VALUE;
    int block = block_of(*(unsigned long long *)parameters[0]);
    if (block < 0 || blocks[block].size < sizeof(unsigned))
        return ILLEGAL_ADDRESS;
    *blocks[block].memory = ((struct module *)function)->value;
    return 0;
}

int cuCtxSynchronize(void)
{
    IN_CONTEXT();
    return 0;
}
