/* Copyright (c) 2026, The sparkgate.blackwell authors
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * The scenario file that lies beside the library: a key and a value a line. The first line with a key counts.
 */

#ifndef SCENARIO_H
#define SCENARIO_H

#include <dlfcn.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SCENARIO_FILE "simulated_gpu.scenario"
#define SCENARIO_LINES 512

/* By this symbol a program can tell these libraries from a driver's. */
const char *sparkgate_simulated_gpu_scenario;

static char scenario_text[1 << 16];
static struct { const char *key, *value; } scenario_lines[SCENARIO_LINES];
static int scenario_count;

__attribute__((format(printf, 1, 2))) static const char *setting(const char *format, ...)
{
    char key[128];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(key, sizeof key, format, arguments);
    va_end(arguments);
    for (int i = 0; i < scenario_count; i++)
        if (!strcmp(scenario_lines[i].key, key))
            return scenario_lines[i].value;
    return NULL;
}

__attribute__((constructor)) static void scenario_load(void)
{
    char path[2 * PATH_MAX];
    Dl_info here;
    FILE *stream = NULL;
    /* Through links, so that the library may be linked to from a directory of the system. */
    if (dladdr((void *)&sparkgate_simulated_gpu_scenario, &here) && realpath(here.dli_fname, path)) {
        strcpy(strrchr(path, '/') + 1, SCENARIO_FILE);
        stream = fopen(path, "r");
    }
    if (stream) {
        scenario_text[fread(scenario_text, 1, sizeof scenario_text - 1, stream)] = 0;
        fclose(stream);
    }
    char *rest = NULL;
    for (char *line = strtok_r(scenario_text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char *value = strchr(line, ' ');
        if (*line == '#' || !value || scenario_count == SCENARIO_LINES)
            continue;
        *value = 0;
        scenario_lines[scenario_count].key = line;
        scenario_lines[scenario_count++].value = value + 1;
    }
    sparkgate_simulated_gpu_scenario = setting("scenario");
    if (!sparkgate_simulated_gpu_scenario) {
        /* A GPU that answers nothing in particular would look like a finding. */
        fprintf(stderr, "simulated GPU: there is no " SCENARIO_FILE " beside the library, or it has no name\n");
        abort();
    }
}

/* What the scenario wants of a call: a code, a hang or a crash; else 0. */
static int demanded(const char *call)
{
    const char *value = setting("call.%s", call);
    if (!value)
        return 0;
    if (!strcmp(value, "crash")) {
        /* Whoever handles the signal would only print. */
        signal(SIGABRT, SIG_DFL);
        abort();
    }
    while (!strcmp(value, "hang"))
        pause();
    return atoi(value);
}

#define CALL()                                  \
    do {                                        \
        int demanded_code = demanded(__func__); \
        if (demanded_code)                      \
            return demanded_code;               \
    } while (0)

static int device_count(void)
{
    int count = 0;
    while (setting("device.%d.name", count))
        count++;
    return count;
}

static const char *of_device(int device, const char *key)
{
    const char *value = setting("device.%d.%s", device, key);
    return value ? value : "";
}

/* "13.1" with scale 1000 and step 10 is 13010. */
static int version_number(const char *key, int scale, int step)
{
    int major = 0, minor = 0;
    const char *value = setting("%s", key);
    if (value)
        sscanf(value, "%d.%d", &major, &minor);
    return major * scale + minor * step;
}

#endif
