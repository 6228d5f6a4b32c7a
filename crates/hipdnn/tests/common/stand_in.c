/* A hipDNN backend that computes nothing, for tests that a real one cannot serve: several engines, other versions,
 * missing functions, log messages on demand.
 *
 *   VERSION    the version it reports
 *   ONLY_BASE  leaves out all functions that older backends lack
 *   NO_CORE    leaves out finalize
 *   WHOLE      adds functions that no test calls, for programs that are linked with it
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifndef VERSION
#define VERSION "0.4.0.standin"
#endif

enum { SUCCESS = 0, BAD_PARAM = 2, NULL_POINTER = 3, SIZE_INSUFFICIENT = 6, NOT_SUPPORTED = 8, EXECUTION_FAILED = 13 };
enum { ENGINE = 1, ENGINECFG = 2, PLAN = 4, GRAPH = 10, VARIANT_PACK = 11 };

typedef struct {
    int kind;
    int64_t engine;
    int64_t knobs;
    int finalized;
} Descriptor;

static const char *const NAMES[] = {"FAST_ENGINE", "SLOW_ENGINE", "BROKEN_ENGINE"};
static const int64_t WORKSPACES[] = {1 << 20, 64, 0};
static __thread char last_error[256];
static void *stream;
static int64_t made[64];
static int64_t handles;
static int64_t preferred = -1;

static int fail(int status, const char *text) {
    strncpy(last_error, text, sizeof last_error - 1);
    return status;
}

static int64_t hash(const char *text) {
    uint64_t value = 0xcbf29ce484222325u;
    for (; *text; text++) value = (value ^ (uint8_t)*text) * 0x100000001b3u;
    return (int64_t)value;
}

static int place_of(int64_t engine) {
    for (int at = 0; at < 3; at++)
        if (hash(NAMES[at]) == engine) return at;
    return -1;
}

/* The number of descriptors of a kind that were created; for tests. */
int64_t stand_in_made(int kind) { return made[kind]; }

/* The number of handles alive; for tests. */
int64_t stand_in_handles(int unused) { return (void)unused, handles; }

const char *hipdnnVersionString_ext(void) { return VERSION; }
int hipdnnCreate(void **handle) { return handle ? (handles++, *handle = &stream, SUCCESS) : NULL_POINTER; }
int hipdnnDestroy(void *handle) { return handle ? (handles--, SUCCESS) : NULL_POINTER; }
int hipdnnSetStream(void *handle, void *given) { return stream = given, handle ? SUCCESS : NULL_POINTER; }
int hipdnnGetStream(void *handle, void **given) { return *given = stream, handle ? SUCCESS : NULL_POINTER; }

int hipdnnBackendCreateDescriptor(int kind, void **out) {
    Descriptor *descriptor = calloc(1, sizeof *descriptor);
    descriptor->kind = kind;
    made[kind]++;
    *out = descriptor;
    return SUCCESS;
}

int hipdnnBackendDestroyDescriptor(void *descriptor) {
    free(descriptor);
    return SUCCESS;
}

int hipdnnBackendSetAttribute(void *on, int name, int type, int64_t count, const void *elements) {
    Descriptor *descriptor = on;
    (void)type;
    if (descriptor->finalized) return fail(1, "it is finalized");
    if (name == 200 || name == 301) descriptor->engine = (*(Descriptor *const *)elements)->engine;
    if (name == 202) descriptor->knobs += count;
    if (name == 607) preferred = *(const int64_t *)elements;
    if (name == 1001) {
        descriptor->engine = *(const int64_t *)elements;
        if (place_of(descriptor->engine) < 0) return fail(BAD_PARAM, "no such engine");
    }
    return SUCCESS;
}

#ifndef NO_CORE
int hipdnnBackendFinalize(void *on) {
    Descriptor *descriptor = on;
    if (descriptor->kind == PLAN && place_of(descriptor->engine) == 2) return fail(NOT_SUPPORTED, "broken by design");
    descriptor->finalized = 1;
    return SUCCESS;
}
#endif

static int give_text(const char *text, int64_t requested, int64_t *count, char *out) {
    int64_t size = (int64_t)strlen(text) + 1;
    if (!out || !requested) return *count = size, SUCCESS;
    *count = requested < size ? requested : size;
    memcpy(out, text, (size_t)*count);
    return SUCCESS;
}

int hipdnnBackendGetAttribute(void *on, int name, int type, int64_t requested, int64_t *count, void *elements) {
    Descriptor *descriptor = on;
    int place = place_of(descriptor->engine);
    (void)type;
    switch (name) {
    case 102:
        *count = 3;
        if (!elements || !requested) return SUCCESS;
        for (int at = 0; at < 3; at++) ((Descriptor **)elements)[at]->engine = hash(NAMES[at]);
        return SUCCESS;
    case 200:
        hipdnnBackendCreateDescriptor(ENGINE, elements);
        (*(Descriptor **)elements)->engine = descriptor->engine;
        return *count = 1, SUCCESS;
    case 203:
    case 302:
        *(int64_t *)elements = WORKSPACES[place] + descriptor->knobs;
        return *count = 1, SUCCESS;
    case 309:
    case 1001:
        *(int64_t *)elements = descriptor->engine;
        return *count = 1, SUCCESS;
    case 607:
        *count = preferred >= 0;
        if (elements && requested && preferred >= 0) *(int64_t *)elements = preferred;
        return SUCCESS;
    case 608: return give_text("from bytes", requested, count, elements);
    case 1002: return *count = 0, SUCCESS;
    case 1005:
        *count = 1;
        if (elements && requested) *(int32_t *)elements = 2;
        return SUCCESS;
    case 1008: return give_text(NAMES[place], requested, count, elements);
    default: return fail(NOT_SUPPORTED, "no such attribute");
    }
}

int hipdnnBackendExecute(void *handle, void *plan, void *pack) {
    if (!handle || !plan || !pack) return NULL_POINTER;
    return place_of(((Descriptor *)plan)->engine) < 0 ? fail(EXECUTION_FAILED, "no engine") : SUCCESS;
}

void hipdnnGetLastErrorString(char *message, size_t size) {
    strncpy(message, last_error, size);
    last_error[0] = 0;
}

static int give(const char *bytes, size_t length, size_t requested, size_t *size, void *out) {
    *size = length;
    if (!out) return SUCCESS;
    if (requested < length) return fail(SIZE_INSUFFICIENT, "too small");
    memcpy(out, bytes, length);
    return SUCCESS;
}

int hipdnnBackendGetSerializedBinaryGraph_ext(void *graph, size_t requested, size_t *size, uint8_t *out) {
    return ((Descriptor *)graph)->kind == GRAPH ? give("graph!", 6, requested, size, out) : BAD_PARAM;
}

#ifndef ONLY_BASE
int hipdnnBackendGetSerializedJsonGraph_ext(void *graph, size_t requested, size_t *size, char *out) {
    (void)graph;
    return give("{\"graph\":1}", 12, requested, size, out);
}

int hipdnnBackendGetSerializedBinaryGraphAndPlan_ext(void *g, void *p, size_t requested, size_t *size, uint8_t *out) {
    (void)g;
    return give(p ? "both!!" : "graph!", 6, requested, size, out);
}

int hipdnnBackendCreateAndDeserializeGraph_ext(void **out, const uint8_t *bytes, size_t size) {
    if (size != 6 || (memcmp(bytes, "graph!", 6) && memcmp(bytes, "both!!", 6))) return fail(BAD_PARAM, "no graph");
    return hipdnnBackendCreateDescriptor(GRAPH, out);
}

int hipdnnBackendCreateAndDeserializeJsonGraph_ext(void **out, const char *text, size_t size) {
    if (!size || text[0] != '{') return fail(BAD_PARAM, "malformed JSON");
    return hipdnnBackendCreateDescriptor(GRAPH, out);
}

int hipdnnBackendGetSerializedExecutionPlan_ext(void *plan, size_t requested, size_t *size, uint8_t *out) {
    if (place_of(((Descriptor *)plan)->engine) == 1) return fail(NOT_SUPPORTED, "this engine keeps its plans");
    return give("plan!!", 6, requested, size, out);
}

int hipdnnBackendCreateAndDeserializeExecutionPlan_ext(void *handle, void **out, const uint8_t *bytes, size_t size) {
    (void)handle;
    if (size != 6 || (memcmp(bytes, "plan!!", 6) && memcmp(bytes, "both!!", 6))) return fail(BAD_PARAM, "no plan");
    hipdnnBackendCreateDescriptor(PLAN, out);
    ((Descriptor *)*out)->engine = hash(NAMES[0]);
    return SUCCESS;
}

int hipdnnBackendGetSerializedBinaryContents_ext(const uint8_t *bytes, size_t size, int *flags) {
    *flags = size == 6 && !memcmp(bytes, "both!!", 6) ? 3 : size == 6 && !memcmp(bytes, "plan!!", 6) ? 2 : 1;
    return SUCCESS;
}

static int four(const char *const texts[4], char *const out[4], size_t *const sizes[4]) {
    int fills = out[0] && out[1] && out[2] && out[3];
    for (int at = 0; at < 4; at++) {
        if (fills && *sizes[at] <= strlen(texts[at])) return fail(BAD_PARAM, "too small");
        if (fills) strcpy(out[at], texts[at]);
        *sizes[at] = strlen(texts[at]) + 1;
    }
    return SUCCESS;
}

int hipdnnGetEngineCount_ext(void *handle, size_t *count) { return *count = 3, handle ? SUCCESS : NULL_POINTER; }

int hipdnnGetEngineInfo_ext(void *h, size_t index, int64_t *id, char *a, size_t *sa, char *b, size_t *sb, char *c,
                            size_t *sc, char *d, size_t *sd) {
    const char *const texts[] = {NAMES[index], "stand-in plugin", "1.2.3", "ENGINE"};
    char *const out[] = {a, b, c, d};
    size_t *const sizes[] = {sa, sb, sc, sd};
    (void)h;
    *id = hash(NAMES[index]);
    return four(texts, out, sizes);
}

int hipdnnGetEngineIdByName_ext(void *handle, const char *name, int64_t *id) {
    (void)handle;
    *id = hash(name);
    return place_of(*id) < 0 ? fail(NOT_SUPPORTED, "no engine of this name") : SUCCESS;
}

int hipdnnGetEngineNameById_ext(void *handle, int64_t id, char *name, size_t *size) {
    int place = place_of(id);
    (void)handle;
    if (place < 0) return fail(NOT_SUPPORTED, "no engine of this id");
    if (name) memcpy(name, NAMES[place], strlen(NAMES[place]) + 1);
    *size = strlen(NAMES[place]) + 1;
    return SUCCESS;
}

int hipdnnGetHeuristicPolicyCount_ext(void *handle, size_t *count) { return *count = 1, handle ? SUCCESS : NULL_POINTER; }

int hipdnnGetHeuristicPolicyInfo_ext(void *h, size_t index, int64_t *id, char *a, size_t *sa, char *b, size_t *sb,
                                     char *c, size_t *sc, char *d, size_t *sd) {
    const char *const texts[] = {"SelectionHeuristic::Config", "built in", "0.4.0", "1.0"};
    char *const out[] = {a, b, c, d};
    size_t *const sizes[] = {sa, sb, sc, sd};
    (void)h, (void)index;
    *id = hash(texts[0]);
    return four(texts, out, sizes);
}

static char plugin_paths[4][256];
static size_t plugin_count;

int hipdnnSetEnginePluginPaths_ext(size_t count, const char *const *paths, int mode) {
    if (mode == 1) plugin_count = 0;
    for (size_t at = 0; at < count; at++) strncpy(plugin_paths[plugin_count++], paths[at], 255);
    return SUCCESS;
}

int hipdnnGetLoadedEnginePluginPaths_ext(void *handle, size_t *count, char **paths, size_t *longest) {
    (void)handle;
    *count = plugin_count;
    for (size_t at = 0; paths && at < plugin_count; at++) strcpy(paths[at], plugin_paths[at]);
    *longest = 256;
    return SUCCESS;
}

int hipdnnBackendWriteEngineRankingResults_ext(void *h, void *graph, const int64_t *ids, size_t count, int *outcome) {
    (void)h, (void)graph;
    *outcome = count == 0 ? 3 : ids[0] == hash("SLOW_ENGINE") ? 0 : 4;
    return SUCCESS;
}

typedef void (*Callback)(void *user, int severity, const char *message);
static struct { Callback call; void *user; int least; } callbacks[8];
static int level = 4;

int hipdnnSetUserLogCallback_ext(Callback call, int least, int mode, void *user) {
    (void)mode;
    if (!call || !user) return fail(BAD_PARAM, "no callback");
    for (int at = 0; at < 8; at++)
        if (least == 4 ? callbacks[at].user == user : !callbacks[at].call) {
            callbacks[at].call = least == 4 ? 0 : call;
            callbacks[at].user = least == 4 ? 0 : user;
            callbacks[at].least = least;
            return SUCCESS;
        }
    return fail(BAD_PARAM, "unknown or too many callbacks");
}

int hipdnnBackendSetGlobalLogLevel_ext(int severity) {
    if (severity < 0 || severity > 4) return fail(BAD_PARAM, "no such severity");
    level = severity;
    return SUCCESS;
}

int hipdnnBackendGetGlobalLogLevel_ext(int *severity) { return *severity = level, SUCCESS; }

void hipdnnLoggingCallback_ext(int severity, const char *message) {
    for (int at = 0; at < 8; at++)
        if (callbacks[at].call && severity >= level && severity >= callbacks[at].least)
            callbacks[at].call(callbacks[at].user, severity, message);
}
#endif

#ifdef WHOLE
const char *hipdnnGetErrorString(int status) { (void)status; return "a status"; }
int hipdnnGetVersion_ext(const char **version) { *version = VERSION; return SUCCESS; }
void hipdnnPeekLastErrorString_ext(char *message, size_t size) { if (size > 0) message[0] = 0; }
int hipdnnSetHeuristicPluginPaths_ext(size_t count, const char *const *paths, int mode) {
    (void)count; (void)paths; (void)mode;
    return NOT_SUPPORTED;
}
int hipdnnSetPluginUnloadMode_ext(int mode) { (void)mode; return NOT_SUPPORTED; }
#endif
