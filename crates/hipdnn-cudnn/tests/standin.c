/* A stand-in for cuDNN's backend interface that computes nothing: it counts calls, and fails on demand.
 *
 *   CUDNN_STANDIN_FINALIZE=KIND:STATUS   finalizing descriptors of that kind returns the status
 *   CUDNN_STANDIN_EXECUTE=STATUS         executing returns the status
 *   CUDNN_STANDIN_RESTORE=STATUS         restoring a plan from text returns the status
 *   CUDNN_STANDIN_VERSION=NUMBER         the version it reports
 *   CUDNN_STANDIN_TRACE=1                prints the kinds of operations, and the modes of elementwise ones
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    int kind;
} descriptor;

static long made, alive, executed, asked, restored;
static const char written[] = "{\"plan\": 1}";
static void *stream;
static _Thread_local const char *words = "";

size_t cudnnGetVersion(void) {
    const char *version = getenv("CUDNN_STANDIN_VERSION");
    return version ? (size_t)atol(version) : 90900;
}
size_t cudnnGetCudartVersion(void) { return 99000; }
const char *cudnnGetErrorString(int status) { return status == 0 ? "CUDNN_STATUS_SUCCESS" : "CUDNN_STATUS_STANDIN"; }
void cudnnGetLastErrorString(char *text, size_t size) { snprintf(text, size, "%s", words); }

int cudnnCreate(void **handle) {
    *handle = malloc(1);
    return 0;
}

int cudnnDestroy(void *handle) {
    free(handle);
    return 0;
}

int cudnnSetStream(void *handle, void *to) {
    (void)handle;
    stream = to;
    return 0;
}

int cudnnBackendCreateDescriptor(int kind, void **out) {
    descriptor *new = malloc(sizeof *new);
    new->kind = kind;
    *out = new;
    made++;
    alive++;
    return 0;
}

int cudnnBackendDestroyDescriptor(void *which) {
    free(which);
    alive--;
    return 0;
}

int cudnnBackendFinalize(void *which) {
    const char *wanted = getenv("CUDNN_STANDIN_FINALIZE");
    asked += ((descriptor *)which)->kind == 4; /* heuristics */
    int kind, status;
    if (wanted && sscanf(wanted, "%d:%d", &kind, &status) == 2 && ((descriptor *)which)->kind == kind) {
        words = "injected failure";
        return status;
    }
    return 0;
}

int cudnnBackendSetAttribute(void *which, int name, int type, int64_t count, const void *elements) {
    (void)which, (void)type;
    if (getenv("CUDNN_STANDIN_TRACE")) {
        if (name == 0) printf("mode %d\n", *(const int *)elements); /* of an elementwise operation */
        if (name == 801) printf("graph of %d\n", (int)count);
        fflush(stdout);
    }
    if (name == 405) { /* a plan's text */
        const char *status = getenv("CUDNN_STANDIN_RESTORE");
        if (status || count != (int64_t)strlen(written) || memcmp(elements, written, (size_t)count) != 0) {
            words = "injected failure";
            return status ? atoi(status) : 2000;
        }
        restored++;
    }
    return 0;
}

int cudnnBackendGetAttribute(void *which, int name, int type, int64_t room, int64_t *count, void *elements) {
    (void)which, (void)type;
    if (name == 202) { /* results of heuristics */
        *count = room == 0 || room > 3 ? 3 : room;
    } else if (name == 303 && elements) { /* a configuration's workspace */
        *(int64_t *)elements = 48;
        *count = 1;
    } else if (name == 402 && elements) { /* a plan's workspace */
        *(int64_t *)elements = 64;
        *count = 1;
    } else if (name == 405 || name == 2702) { /* texts of a plan and of the device */
        *count = (int64_t)strlen(written);
        if (elements && room >= *count) memcpy(elements, written, (size_t)*count);
    } else {
        *count = 0;
    }
    return 0;
}

int cudnnBackendExecute(void *handle, void *plan, void *pack) {
    (void)handle, (void)plan, (void)pack;
    const char *status = getenv("CUDNN_STANDIN_EXECUTE");
    executed++;
    if (status) {
        words = "injected failure";
        return atoi(status);
    }
    return 0;
}

/* For the tests: what was done so far. */
long standin_made(void) { return made; }
long standin_alive(void) { return alive; }
long standin_executed(void) { return executed; }
long standin_asked(void) { return asked; }
long standin_restored(void) { return restored; }
void *standin_stream(void) { return stream; }
