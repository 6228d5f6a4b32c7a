/* A stand-in for hiprtc: it compiles C for the processor with `cc`, as code for the host driver.
 *
 * A source that does not compile gives the compiler's own messages as its log. Without a target it answers "invalid
 * option", as hiprtc does for options it does not know.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_OPTION = 5, COMPILATION = 6 };

typedef struct {
    char *source, *name, *code, *log;
    size_t code_bytes, log_bytes;
} program;

int hiprtcVersion(int *major, int *minor) {
    *major = 9, *minor = 0;
    return SUCCESS;
}

const char *hiprtcGetErrorString(int status) {
    return status == COMPILATION ? "HIPRTC_ERROR_COMPILATION" : status ? "HIPRTC_ERROR_INVALID_OPTION" : "HIPRTC_SUCCESS";
}

int hiprtcCreateProgram(program **out, const char *source, const char *name, int headers, const char **texts,
                        const char **names) {
    (void)headers, (void)texts, (void)names;
    *out = calloc(1, sizeof **out);
    (*out)->source = strdup(source);
    (*out)->name = strdup(name);
    return SUCCESS;
}

int hiprtcDestroyProgram(program **which) {
    free((*which)->source), free((*which)->name), free((*which)->code), free((*which)->log);
    free(*which);
    return SUCCESS;
}

static char *contents(const char *path, size_t *bytes) {
    FILE *file = fopen(path, "rb");
    char *text = NULL;
    if (file) {
        fseek(file, 0, SEEK_END);
        *bytes = (size_t)ftell(file);
        rewind(file);
        text = malloc(*bytes + 1);
        *bytes = fread(text, 1, *bytes, file);
        text[*bytes] = 0;
        fclose(file);
    }
    return text;
}

int hiprtcCompileProgram(program *which, int count, const char **options) {
    int has_target = 0;
    for (int at = 0; at < count; at++) has_target |= strncmp(options[at], "--offload-arch=", 15) == 0;
    if (!has_target) return INVALID_OPTION;
    char folder[] = "/tmp/standin-hiprtc-XXXXXX", source[64], code[64], log[64], command[512];
    if (!mkdtemp(folder)) return COMPILATION;
    snprintf(source, sizeof source, "%s/source.c", folder);
    snprintf(code, sizeof code, "%s/code.so", folder);
    snprintf(log, sizeof log, "%s/log", folder);
    FILE *file = fopen(source, "w");
    fputs(which->source, file);
    fclose(file);
    snprintf(command, sizeof command, "cc -std=c11 -O1 -shared -fPIC -o %s %s 2> %s", code, source, log);
    int status = system(command) == 0 ? SUCCESS : COMPILATION;
    which->log = contents(log, &which->log_bytes);
    which->code = contents(code, &which->code_bytes);
    unlink(source), unlink(code), unlink(log), rmdir(folder);
    return status;
}

int hiprtcGetProgramLogSize(program *which, size_t *bytes) {
    *bytes = which->log_bytes ? which->log_bytes + 1 : 0;
    return SUCCESS;
}

int hiprtcGetProgramLog(program *which, char *to) {
    memcpy(to, which->log, which->log_bytes + 1);
    return SUCCESS;
}

int hiprtcGetCodeSize(program *which, size_t *bytes) {
    *bytes = which->code_bytes;
    return SUCCESS;
}

int hiprtcGetCode(program *which, char *to) {
    memcpy(to, which->code, which->code_bytes);
    return SUCCESS;
}
