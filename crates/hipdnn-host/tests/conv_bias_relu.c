/* Uses the backend only through its C interface: a 1x1 convolution, a bias and a ReLU with a known result. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef int (*create_fn)(void **);
typedef int (*make_fn)(int, void **);
typedef int (*set_fn)(void *, int, int, int64_t, const void *);
typedef int (*get_fn)(void *, int, int, int64_t, int64_t *, void *);
typedef int (*one_fn)(void *);
typedef int (*execute_fn)(void *, void *, void *);
typedef void (*error_fn)(char *, size_t);

static create_fn create;
static make_fn make;
static set_fn set;
static get_fn get;
static one_fn finalize, destroy_descriptor, destroy;
static execute_fn execute;
static error_fn last_error;

#define TRY(call)                                                                   \
    do {                                                                            \
        int status = (call);                                                        \
        if (status != 0) {                                                          \
            char text[1024];                                                        \
            last_error(text, sizeof text);                                          \
            fprintf(stderr, "line %d: status %d: %s\n", __LINE__, status, text);    \
            return 1;                                                               \
        }                                                                           \
    } while (0)

enum { HANDLE = 0, DATA_TYPE = 1, BOOLEAN = 2, INT64 = 3, VOID_PTR = 6, HEUR_MODE = 7, DESCRIPTOR = 13, CONV_MODE = 24, POINTWISE_MODE = 25 };

static int tensor(void **out, int64_t uid, const int64_t dims[4], const int64_t strides[4], char is_virtual) {
    int type = 0;
    TRY(make(14, out));
    TRY(set(*out, 1300, INT64, 1, &uid));
    TRY(set(*out, 1302, DATA_TYPE, 1, &type));
    TRY(set(*out, 1303, INT64, 4, dims));
    TRY(set(*out, 1304, INT64, 4, strides));
    TRY(set(*out, 1305, BOOLEAN, 1, &is_virtual));
    TRY(finalize(*out));
    return 0;
}

static int pointwise(void **out, int mode, void *a, void *b, void *y) {
    int type = 0;
    TRY(make(18, out));
    TRY(set(*out, 2200, DESCRIPTOR, 1, &a));
    if (b) TRY(set(*out, 2202, DESCRIPTOR, 1, &b));
    TRY(set(*out, 2201, DESCRIPTOR, 1, &y));
    TRY(set(*out, 2300, POINTWISE_MODE, 1, &mode));
    TRY(set(*out, 2307, DATA_TYPE, 1, &type));
    TRY(finalize(*out));
    return 0;
}

int main(int argc, char **argv) {
    void *library = argc == 2 ? dlopen(argv[1], RTLD_NOW) : NULL;
    if (!library) return fprintf(stderr, "%s\n", dlerror()), 1;
    create = (create_fn)dlsym(library, "hipdnnCreate");
    destroy = (one_fn)dlsym(library, "hipdnnDestroy");
    make = (make_fn)dlsym(library, "hipdnnBackendCreateDescriptor");
    destroy_descriptor = (one_fn)dlsym(library, "hipdnnBackendDestroyDescriptor");
    set = (set_fn)dlsym(library, "hipdnnBackendSetAttribute");
    get = (get_fn)dlsym(library, "hipdnnBackendGetAttribute");
    finalize = (one_fn)dlsym(library, "hipdnnBackendFinalize");
    execute = (execute_fn)dlsym(library, "hipdnnBackendExecute");
    last_error = (error_fn)dlsym(library, "hipdnnGetLastErrorString");

    const int64_t xd[4] = {1, 2, 2, 2}, xs[4] = {8, 4, 2, 1}, wd[4] = {1, 2, 1, 1}, ws[4] = {2, 1, 1, 1};
    const int64_t bd[4] = {1, 1, 1, 1}, bs[4] = {1, 1, 1, 1}, yd[4] = {1, 1, 2, 2}, ys[4] = {4, 4, 2, 1};
    void *handle, *x, *w, *b, *y, *sum, *out;
    TRY(create(&handle));
    if (tensor(&x, 1, xd, xs, 0) || tensor(&w, 2, wd, ws, 0) || tensor(&b, 3, bd, bs, 0)) return 1;
    if (tensor(&y, 4, yd, ys, 1) || tensor(&sum, 5, yd, ys, 1) || tensor(&out, 6, yd, ys, 0)) return 1;

    void *ops[3];
    int64_t zeros[2] = {0, 0}, ones[2] = {1, 1};
    int mode = 1, type = 0;
    TRY(make(15, &ops[0]));
    TRY(set(ops[0], 1401, DESCRIPTOR, 1, &x));
    TRY(set(ops[0], 1400, DESCRIPTOR, 1, &w));
    TRY(set(ops[0], 1402, DESCRIPTOR, 1, &y));
    TRY(set(ops[0], 1505, INT64, 2, zeros));
    TRY(set(ops[0], 1504, INT64, 2, zeros));
    TRY(set(ops[0], 1503, INT64, 2, ones));
    TRY(set(ops[0], 1502, INT64, 2, ones));
    TRY(set(ops[0], 1501, CONV_MODE, 1, &mode));
    TRY(set(ops[0], 1500, DATA_TYPE, 1, &type));
    TRY(finalize(ops[0]));
    if (pointwise(&ops[1], 2, y, b, sum) || pointwise(&ops[2], 34, sum, NULL, out)) return 1;

    void *graph, *heuristic, *config, *plan, *pack;
    int fallback = 0;
    TRY(make(10, &graph));
    TRY(set(graph, 601, DESCRIPTOR, 3, ops));
    TRY(set(graph, 600, HANDLE, 1, &handle));
    TRY(finalize(graph));
    TRY(make(3, &heuristic));
    TRY(set(heuristic, 101, DESCRIPTOR, 1, &graph));
    TRY(set(heuristic, 100, HEUR_MODE, 1, &fallback));
    TRY(finalize(heuristic));
    int64_t count = 0;
    TRY(get(heuristic, 102, DESCRIPTOR, 0, &count, NULL));
    if (count < 1) return fprintf(stderr, "no engine\n"), 1;
    TRY(make(2, &config));
    TRY(get(heuristic, 102, DESCRIPTOR, 1, &count, &config));
    TRY(finalize(config));
    TRY(make(4, &plan));
    TRY(set(plan, 301, DESCRIPTOR, 1, &config));
    TRY(finalize(plan));
    int64_t workspace = -1;
    TRY(get(plan, 302, INT64, 1, &count, &workspace));

    float xv[8] = {1, 2, 3, 4, 5, 6, 7, 8}, wv[2] = {1, -1}, bv[1] = {3.5f}, found[4] = {-1, -1, -1, -1};
    /* x0 - x1 is -4 everywhere; the bias makes it -0.5, the ReLU 0. With w = {2, -1}: -3, -2, -1, 0 plus 3.5. */
    wv[0] = 2;
    const float wanted[4] = {0.5f, 1.5f, 2.5f, 3.5f};
    void *pointers[4] = {xv, wv, bv, found}, *none = NULL;
    int64_t uids[4] = {1, 2, 3, 6};
    TRY(make(11, &pack));
    TRY(set(pack, 701, VOID_PTR, 4, pointers));
    TRY(set(pack, 700, INT64, 4, uids));
    TRY(set(pack, 703, VOID_PTR, 1, &none));
    TRY(finalize(pack));
    TRY(execute(handle, plan, pack));
    if (memcmp(found, wanted, sizeof wanted) != 0) {
        fprintf(stderr, "found %g %g %g %g\n", found[0], found[1], found[2], found[3]);
        return 1;
    }
    void *all[] = {pack, plan, config, heuristic, graph, ops[0], ops[1], ops[2], x, w, b, y, sum, out};
    for (size_t at = 0; at < sizeof all / sizeof *all; at++) TRY(destroy_descriptor(all[at]));
    TRY(destroy(handle));
    puts("conv, bias, relu: right");
    return 0;
}
