/* Copyright (c) 2026, The sparkgate.blackwell authors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * A libnvidia-ml.so.1 that has no GPU and answers from a scenario file.
 */

#define _GNU_SOURCE
#include "scenario.h"

enum { UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, INSUFFICIENT_SIZE = 7, VERSION_MISMATCH = 25 };

#define DEVICES 64

typedef unsigned long long u64;

static int initialised;
static char handles[DEVICES];

#define STARTED()                 \
    do {                          \
        CALL();                   \
        if (!initialised)         \
            return UNINITIALIZED; \
    } while (0)
#define ON_DEVICE(handle)                                           \
    STARTED();                                                      \
    int device = (int)((handle) - handles);                         \
    if ((handle) < handles || (handle) >= handles + device_count()) \
        return INVALID_ARGUMENT

static int copy_text(char *to, unsigned size, const char *text)
{
    if (size <= strlen(text))
        return INSUFFICIENT_SIZE;
    strcpy(to, text);
    return 0;
}

int nvmlInit_v2(void)
{
    CALL();
    initialised = 1;
    return 0;
}

int nvmlShutdown(void)
{
    STARTED();
    initialised = 0;
    return 0;
}

const char *nvmlErrorString(int code)
{
    switch (code) {
    case 0: return "Success";
    case UNINITIALIZED: return "Uninitialized";
    case INVALID_ARGUMENT: return "Invalid Argument";
    case NOT_SUPPORTED: return "Not Supported";
    case INSUFFICIENT_SIZE: return "Insufficient Size";
    case VERSION_MISMATCH: return "Argument Version Mismatch";
    default: return "Unknown Error";
    }
}

int nvmlSystemGetDriverVersion(char *text, unsigned size)
{
    STARTED();
    const char *version = setting("driver_version");
    return copy_text(text, size, version ? version : "");
}

int nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    CALL();
    *version = version_number("cuda_version", 1000, 10);
    return 0;
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
    STARTED();
    *count = (unsigned)device_count();
    return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, char **handle)
{
    STARTED();
    if (index >= (unsigned)device_count())
        return INVALID_ARGUMENT;
    *handle = &handles[index];
    return 0;
}

int nvmlDeviceGetName(char *handle, char *text, unsigned size)
{
    ON_DEVICE(handle);
    return copy_text(text, size, of_device(device, "name"));
}

int nvmlDeviceGetUUID(char *handle, char *text, unsigned size)
{
    ON_DEVICE(handle);
    return copy_text(text, size, of_device(device, "uuid"));
}

struct pci { char legacy[16]; unsigned domain, bus, device, device_id, subsystem_id; char bus_id[32]; };

int nvmlDeviceGetPciInfo_v3(char *handle, struct pci *pci)
{
    ON_DEVICE(handle);
    const char *text = of_device(device, "bus_id");
    memset(pci, 0, sizeof *pci);
    if (sscanf(text, "%x:%x:%x", &pci->domain, &pci->bus, &pci->device) != 3)
        return INVALID_ARGUMENT;
    snprintf(pci->legacy, sizeof pci->legacy, "%s", strncmp(text, "0000", 4) ? text : text + 4);
    snprintf(pci->bus_id, sizeof pci->bus_id, "%s", text);
    return 0;
}

int nvmlDeviceGetCudaComputeCapability(char *handle, int *major, int *minor)
{
    ON_DEVICE(handle);
    return sscanf(of_device(device, "compute_capability"), "%d.%d", major, minor) == 2 ? 0 : NOT_SUPPORTED;
}

static int memory_of(int device, u64 *total, u64 *free_)
{
    /* The driver has no memory of its own to tell of where it shares the machine's. */
    if (atoi(of_device(device, "integrated")))
        return NOT_SUPPORTED;
    *total = strtoull(of_device(device, "memory_bytes"), NULL, 10);
    *free_ = strtoull(of_device(device, "memory_free_bytes"), NULL, 10);
    return 0;
}

struct memory { u64 total, free, used; };

int nvmlDeviceGetMemoryInfo(char *handle, struct memory *memory)
{
    ON_DEVICE(handle);
    int code = memory_of(device, &memory->total, &memory->free);
    if (!code)
        memory->used = memory->total - memory->free;
    return code;
}

struct memory_v2 { unsigned version; u64 total, reserved, free, used; };

int nvmlDeviceGetMemoryInfo_v2(char *handle, struct memory_v2 *memory)
{
    ON_DEVICE(handle);
    if (memory->version != (sizeof *memory | 2 << 24))
        return VERSION_MISMATCH;
    int code = memory_of(device, &memory->total, &memory->free);
    if (!code) {
        memory->reserved = 0;
        memory->used = memory->total - memory->free;
    }
    return code;
}

int nvmlDeviceGetBrand(char *handle, int *brand)
{
    ON_DEVICE(handle);
    *brand = atoi(of_device(device, "brand"));
    return 0;
}

int nvmlDeviceGetMigMode(char *handle, unsigned *now, unsigned *pending)
{
    ON_DEVICE(handle);
    const char *mode = of_device(device, "mig");
    if (!*mode)
        return NOT_SUPPORTED;
    *now = *pending = (unsigned)atoi(mode);
    return 0;
}

struct process { unsigned pid; u64 used; unsigned gpu_instance, compute_instance; };

int nvmlDeviceGetComputeRunningProcesses_v3(char *handle, unsigned *count, struct process *processes)
{
    ON_DEVICE(handle);
    unsigned room = *count, found = 0;
    int length;
    struct process entry = { 0, 0, ~0u, ~0u };
    for (const char *text = of_device(device, "processes");
         sscanf(text, " %u:%llu%n", &entry.pid, &entry.used, &length) == 2; text += length) {
        if (found < room)
            processes[found] = entry;
        found++;
    }
    *count = found;
    return found > room ? INSUFFICIENT_SIZE : 0;
}
