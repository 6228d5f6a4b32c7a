/* A stand-in for cuDNN that computes graphs in double precision, one operation after the other, on memory that the
 * processor can read. It has elementwise operations, reductions, products, convolutions, pooling and norms.
 *
 * Its first engine multiplies single precision in TF32 and says so in its numerical notes; its second one does not.
 *
 *   CUDNN_STANDIN_MOST=NUMBER   graphs with more operations are not supported
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, NOT_SUPPORTED = 3000 };
enum { AXES = 8, ITEMS = 32 };
enum { CONVOLUTION = 10, TO_FILTER = 11, TO_DATA = 12 };
enum { POINTWISE = 13, GRAPH = 15, TENSOR = 17, MATMUL = 19, REDUCTION_SETTINGS = 21, REDUCTION = 22, DEVICE = 38 };
enum { POOL = 25, POOL_BACK = 26, NORM = 29, NORM_BACK = 30 };
enum { FLOAT = 0, DOUBLE = 1, HALF = 2, INT8 = 3, INT32 = 4, UINT8 = 6, BFLOAT16 = 9, INT64 = 10, BOOLEAN = 11 };
enum { DESCRIPTOR_TYPE = 15 };

/* Descriptors keep copies of their attributes, and the descriptors among those alive. */
typedef struct descriptor descriptor;
typedef struct {
    int name, type;
    int64_t count;
    char *bytes;
} attribute;
struct descriptor {
    int kind, holders, items;
    attribute item[ITEMS];
};

static _Thread_local const char *words = "";

static int width_of(int type) {
    switch (type) {
    case 2: case 24: return 1;                  /* flags and characters */
    case 0: case 3: case 5: case 6: case 15: return 8; /* handles, numbers, addresses, descriptors */
    default: return 4;
    }
}

static int refuse(const char *why) {
    words = why;
    return NOT_SUPPORTED;
}

static void release(descriptor *which) {
    if (--which->holders) return;
    for (int at = 0; at < which->items; at++) {
        attribute *one = &which->item[at];
        for (int64_t k = 0; one->type == DESCRIPTOR_TYPE && k < one->count; k++) release(((descriptor **)one->bytes)[k]);
        free(one->bytes);
    }
    free(which);
}

static int set(descriptor *which, int name, int type, int64_t count, const void *elements) {
    if (which->items == ITEMS) abort();
    attribute *to = &which->item[which->items++];
    size_t bytes = (size_t)count * (size_t)width_of(type);
    *to = (attribute){name, type, count, memcpy(malloc(bytes + 1), elements, bytes)};
    for (int64_t k = 0; type == DESCRIPTOR_TYPE && k < count; k++) ((descriptor **)to->bytes)[k]->holders++;
    return SUCCESS;
}

static const attribute *find(const descriptor *of, int name) {
    for (int at = 0; at < of->items; at++)
        if (of->item[at].name == name) return &of->item[at];
    return NULL;
}

static descriptor *part(const descriptor *of, int name) {
    const attribute *found = find(of, name);
    return found ? *(descriptor **)found->bytes : NULL;
}

static int code(const descriptor *of, int name) { return *(const int *)find(of, name)->bytes; }
static const int64_t *list(const descriptor *of, int name) { return (const int64_t *)find(of, name)->bytes; }

static double setting(const descriptor *of, int name, double otherwise) {
    const attribute *found = find(of, name);
    return found ? *(const double *)found->bytes : otherwise;
}

/* Numbers in memory. */
static double half(uint16_t bits) {
    int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    double size = exponent == 31 ? (mantissa ? NAN : INFINITY)
                  : exponent     ? ldexp(1024 + mantissa, exponent - 25)
                                 : ldexp(mantissa, -24);
    return bits >> 15 ? -size : size;
}

static uint16_t to_half(double value) {
    uint16_t sign = signbit(value) ? 0x8000 : 0;
    if (isnan(value)) return 0x7e00;
    if (fabs(value) >= 65520) return sign | 0x7c00;
    int exponent;
    double size = frexp(fabs(value), &exponent);
    if (size == 0 || exponent < -13) return sign | (uint16_t)nearbyint(ldexp(fabs(value), 24));
    return (uint16_t)(sign + ((exponent + 13) << 10) + (int)nearbyint(ldexp(size, 11)));
}

static double get(const void *from, int type, int64_t at) {
    uint32_t bits;
    float value;
    switch (type) {
    case FLOAT: return ((const float *)from)[at];
    case DOUBLE: return ((const double *)from)[at];
    case HALF: return half(((const uint16_t *)from)[at]);
    case INT8: return ((const int8_t *)from)[at];
    case INT32: return ((const int32_t *)from)[at];
    case INT64: return (double)((const int64_t *)from)[at];
    case BFLOAT16:
        bits = (uint32_t)((const uint16_t *)from)[at] << 16;
        memcpy(&value, &bits, 4);
        return value;
    default: return ((const uint8_t *)from)[at];
    }
}

static double within(double value, double least, double most) {
    return fmin(fmax(nearbyint(value), least), most);
}

static void put(void *to, int type, int64_t at, double value) {
    uint32_t bits;
    float rounded = (float)value;
    switch (type) {
    case FLOAT: ((float *)to)[at] = rounded; break;
    case DOUBLE: ((double *)to)[at] = value; break;
    case HALF: ((uint16_t *)to)[at] = to_half(value); break;
    case INT8: ((int8_t *)to)[at] = (int8_t)within(value, -128, 127); break;
    case INT32: ((int32_t *)to)[at] = (int32_t)within(value, INT32_MIN, INT32_MAX); break;
    case INT64: ((int64_t *)to)[at] = (int64_t)nearbyint(value); break;
    case BFLOAT16:
        memcpy(&bits, &rounded, 4);
        ((uint16_t *)to)[at] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
        break;
    default: ((uint8_t *)to)[at] = (uint8_t)within(value, 0, 255);
    }
}

/* A tensor during a run: the caller's memory, or an intermediate one in double precision. */
typedef struct {
    int64_t uid, dims[AXES], strides[AXES];
    int rank, type;
    void *memory;
} tensor;

typedef struct {
    tensor known[256];
    int count;
    void *made[256];
    int made_count;
    const attribute *uids, *addresses;
    int is_fast;
} state;

static int64_t volume(const tensor *of) {
    int64_t all = 1;
    for (int axis = 0; axis < of->rank; axis++) all *= of->dims[axis];
    return all;
}

static tensor *tensor_of(state *run, const descriptor *which) {
    if (!which) return NULL;
    int64_t uid = *list(which, 906);
    for (int at = 0; at < run->count; at++)
        if (run->known[at].uid == uid) return &run->known[at];
    if (run->count == 256) abort();
    tensor *new = &run->known[run->count++];
    *new = (tensor){.uid = uid, .rank = (int)find(which, 902)->count, .type = code(which, 901)};
    memcpy(new->dims, list(which, 902), 8 * (size_t)new->rank);
    memcpy(new->strides, list(which, 903), 8 * (size_t)new->rank);
    const attribute *is_virtual = find(which, 907);
    if (is_virtual && *is_virtual->bytes) {
        int64_t step = 1;
        for (int axis = new->rank - 1; axis >= 0; axis--) new->strides[axis] = step, step *= new->dims[axis];
        new->memory = run->made[run->made_count++] = calloc((size_t)step, 8);
        new->type = DOUBLE;
        return new;
    }
    for (int64_t at = 0; at < run->uids->count; at++)
        if (((int64_t *)run->uids->bytes)[at] == uid) new->memory = ((void **)run->addresses->bytes)[at];
    if (!new->memory) abort();
    return new;
}

static int64_t place(const tensor *of, const int64_t *index) {
    int64_t at = 0;
    for (int axis = 0; axis < of->rank; axis++) at += of->dims[axis] == 1 ? 0 : index[axis] * of->strides[axis];
    return at;
}

static double load(const tensor *of, const int64_t *index) { return get(of->memory, of->type, place(of, index)); }
static void store(tensor *of, const int64_t *index, double value) { put(of->memory, of->type, place(of, index), value); }

/* A factor of a product: single precision loses bits on the fast engine. */
static double factor_of(const state *run, const tensor *of, const int64_t *index) {
    double value = load(of, index);
    int exponent;
    if (!run->is_fast || of->type != FLOAT) return value;
    value = frexp(value, &exponent);
    return ldexp(nearbyint(ldexp(value, 11)), exponent - 11);
}

/* The next index; 0 after the last one. */
static int next(const int64_t *dims, int rank, int64_t *index) {
    for (int axis = rank - 1; axis >= 0; axis--) {
        if (++index[axis] < dims[axis]) return 1;
        index[axis] = 0;
    }
    return 0;
}

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

static double activation(const descriptor *how, int mode, double x) {
    double lower = setting(how, 3, 0), upper = setting(how, 4, INFINITY), beta;
    switch (mode) {
    case 100: return x <= lower ? lower + setting(how, 5, 0) * (x - lower) : fmin(x, upper);
    case 101: return tanh(x);
    case 102: return sigmoid(x);
    case 103: return x > 0 ? x : setting(how, 6, 1) * expm1(x);
    case 104: return x * 0.5 * (1 + erf(x / sqrt(2)));
    case 105: beta = setting(how, 7, 1); return log1p(exp(beta * x)) / beta;
    case 106: return x * sigmoid(setting(how, 8, 1) * x);
    default: return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
    }
}

/* The slope of an activation, by its central difference. */
static double slope(const descriptor *how, int mode, double x) {
    double step = 1e-6;
    return (activation(how, mode, x + step) - activation(how, mode, x - step)) / (2 * step);
}

static double elementwise(const descriptor *how, int mode, double x, double b, double t) {
    switch (mode) {
    case 0: return x + b;
    case 1: return x * b;
    case 2: return isnan(x) || isnan(b) ? NAN : fmin(x, b);
    case 3: return isnan(x) || isnan(b) ? NAN : fmax(x, b);
    case 4: return sqrt(x);
    case 5: return x + b * b;
    case 6: return x / b;
    case 9: return x - b;
    case 10: return fabs(x);
    case 11: return ceil(x);
    case 13: return exp(x);
    case 14: return floor(x);
    case 15: return log(x);
    case 16: return -x;
    case 17: return 1 / sqrt(x);
    case 18: return sin(x);
    case 19: return tan(x);
    case 20: return erf(x);
    case 21: return x;
    case 22: return 1 / x;
    case 300: return x == b;
    case 301: return x != b;
    case 302: return x > b;
    case 303: return x >= b;
    case 304: return x < b;
    case 305: return x <= b;
    case 400: return x != 0 && b != 0;
    case 401: return x != 0 || b != 0;
    case 402: return x == 0;
    case 601: return t != 0 ? x : b;
    default: return activation(how, mode, x);
    }
}

static void pointwise(state *run, const descriptor *operation) {
    const descriptor *how = part(operation, 750);
    int mode = code(how, 0), is_backward = mode >= 200 && mode < 300;
    const tensor *x = tensor_of(run, part(operation, 751)), *b = tensor_of(run, part(operation, 752));
    const tensor *t = tensor_of(run, part(operation, 758)), *dy = tensor_of(run, part(operation, 757));
    tensor *y = tensor_of(run, part(operation, is_backward ? 756 : 753));
    int64_t index[AXES] = {0};
    do {
        double value;
        if (mode == 501)
            value = (double)index[*list(how, 9)];
        else if (is_backward)
            value = load(dy, index) * slope(how, mode - 100, load(x, index));
        else
            value = elementwise(how, mode, load(x, index), b ? load(b, index) : 0, t ? load(t, index) : 0);
        store(y, index, value);
    } while (next(y->dims, y->rank, index));
}

static double joined(int how, double all, double value) {
    switch (how) {
    case 0: case 5: return all + value;
    case 1: return all * value;
    case 2: return fmin(all, value);
    case 3: return fmax(all, value);
    case 4: return fmax(all, fabs(value));
    case 6: return all + fabs(value);
    case 7: return all + value * value;
    default: return value == 0 ? all : all * value;
    }
}

static void reduce(int how, const tensor *x, tensor *y) {
    int64_t index[AXES] = {0}, size = volume(y);
    double first = how == 1 || how == 8 ? 1 : how == 2 ? INFINITY : how == 3 ? -INFINITY : 0;
    double *sums = malloc((size_t)size * 8);
    for (int64_t at = 0; at < size; at++) sums[at] = first;
    do {
        int64_t at = 0;
        for (int axis = 0; axis < y->rank; axis++) at = at * y->dims[axis] + (y->dims[axis] == 1 ? 0 : index[axis]);
        sums[at] = joined(how, sums[at], load(x, index));
    } while (next(x->dims, x->rank, index));
    memset(index, 0, sizeof index);
    int64_t at = 0;
    do {
        double sum = sums[at++];
        store(y, index, how == 5 ? sum * (double)size / (double)volume(x) : how == 7 ? sqrt(sum) : sum);
    } while (next(y->dims, y->rank, index));
    free(sums);
}

static void matmul(state *run, const descriptor *operation) {
    const tensor *a = tensor_of(run, part(operation, 1520)), *b = tensor_of(run, part(operation, 1521));
    tensor *c = tensor_of(run, part(operation, 1522));
    int row = c->rank - 2, col = c->rank - 1;
    int64_t index[AXES] = {0};
    do {
        int64_t left[AXES], right[AXES];
        double sum = 0;
        for (int axis = 0; axis < c->rank; axis++) { /* several matrices may share one */
            left[axis] = index[axis] * a->dims[axis] / c->dims[axis];
            right[axis] = index[axis] * b->dims[axis] / c->dims[axis];
        }
        left[row] = index[row], right[col] = index[col];
        for (int64_t k = 0; k < a->dims[col]; k++) {
            left[col] = right[row] = k;
            sum += factor_of(run, a, left) * factor_of(run, b, right);
        }
        store(c, index, sum);
    } while (next(c->dims, c->rank, index));
}

static void store_all(tensor *to, const double *values) {
    int64_t index[AXES] = {0}, at = 0;
    do store(to, index, values[at++]);
    while (next(to->dims, to->rank, index));
}

static int64_t flat(const tensor *of, const int64_t *index) {
    int64_t at = 0;
    for (int axis = 0; axis < of->rank; axis++) at = at * of->dims[axis] + index[axis];
    return at;
}

static void convolution(state *run, const descriptor *operation) {
    static const int names[][4] = {{702, 704, 703, 705}, {714, 716, 715, 717}, {708, 710, 709, 711}};
    const int *name = names[operation->kind - CONVOLUTION];
    const descriptor *how = part(operation, name[0]);
    tensor *x = tensor_of(run, part(operation, name[1])), *w = tensor_of(run, part(operation, name[2]));
    tensor *y = tensor_of(run, part(operation, name[3]));
    tensor *made = operation->kind == CONVOLUTION ? y : operation->kind == TO_FILTER ? w : x;
    const int64_t *dilations = list(how, 102), *strides = list(how, 103), *before = list(how, 105);
    int is_flipped = code(how, 101) == 0;
    int64_t results = w->dims[0] / (x->dims[1] / w->dims[1]), index[AXES] = {0};
    double *sums = calloc((size_t)volume(made), 8);
    do {
        int64_t tap[AXES] = {0};
        do {
            if (tap[0]) break; /* one filter for each channel of the result */
            int64_t from[AXES], filter[AXES];
            int fits = 1;
            memcpy(filter, tap, sizeof filter);
            filter[0] = index[1];
            from[0] = index[0];
            from[1] = index[1] / results * w->dims[1] + tap[1];
            for (int axis = 2; axis < x->rank; axis++) {
                int64_t step = is_flipped ? w->dims[axis] - 1 - tap[axis] : tap[axis];
                from[axis] = index[axis] * strides[axis - 2] + step * dilations[axis - 2] - before[axis - 2];
                fits &= from[axis] >= 0 && from[axis] < x->dims[axis];
            }
            if (!fits) continue;
            if (made == y) sums[flat(y, index)] += factor_of(run, x, from) * factor_of(run, w, filter);
            if (made == w) sums[flat(w, filter)] += factor_of(run, x, from) * factor_of(run, y, index);
            if (made == x) sums[flat(x, from)] += factor_of(run, y, index) * factor_of(run, w, filter);
        } while (next(w->dims, w->rank, tap));
    } while (next(y->dims, y->rank, index));
    store_all(made, sums);
    free(sums);
}

static void pool(state *run, const descriptor *operation, int is_backward) {
    const descriptor *how = part(operation, is_backward ? 1725 : 1716);
    tensor *x = tensor_of(run, part(operation, is_backward ? 1720 : 1710));
    tensor *y = tensor_of(run, part(operation, is_backward ? 1721 : 1711));
    int mode = code(how, 1700), spatial = x->rank - 2;
    const int64_t *window = list(how, 1706), *strides = list(how, 1705), *before = list(how, 1704);
    int64_t index[AXES] = {0}, all = 1;
    for (int axis = 0; axis < spatial; axis++) all *= window[axis];
    double *slopes = calloc((size_t)volume(x), 8);
    do {
        int64_t tap[AXES] = {0}, from[AXES], inside[4096], count = 0;
        double most = -INFINITY, sum = 0;
        do {
            int fits = 1;
            memcpy(from, index, sizeof from);
            for (int axis = 0; axis < spatial; axis++) {
                from[axis + 2] = index[axis + 2] * strides[axis] + tap[axis] - before[axis];
                fits &= from[axis + 2] >= 0 && from[axis + 2] < x->dims[axis + 2];
            }
            if (!fits) continue;
            inside[count++] = flat(x, from);
            if (!is_backward) most = fmax(most, load(x, from)), sum += load(x, from);
        } while (next(window, spatial, tap));
        double share = mode == 2 ? (double)all : (double)count;
        if (!is_backward) store(y, index, mode == 3 ? most : sum / share);
        for (int64_t at = 0; is_backward && at < count; at++) slopes[inside[at]] += load(y, index) / share;
    } while (next(y->dims, y->rank, index));
    if (is_backward) store_all(x, slopes);
    free(slopes);
}

/* Norms keep one axis: batch norms the channels, the others the rows. */
static void norm(state *run, const descriptor *operation) {
    int mode = code(operation, 2000), kept = mode == 2;
    const tensor *x = tensor_of(run, part(operation, 2002)), *scale = tensor_of(run, part(operation, 2005));
    const tensor *bias = tensor_of(run, part(operation, 2006)), *epsilon = tensor_of(run, part(operation, 2007));
    tensor *y = tensor_of(run, part(operation, 2013));
    tensor *mean_to = tensor_of(run, part(operation, 2003)), *inverse_to = tensor_of(run, part(operation, 2004));
    const tensor *factor = tensor_of(run, part(operation, 2008));
    const tensor *before[] = {tensor_of(run, part(operation, 2009)), tensor_of(run, part(operation, 2010))};
    tensor *after[] = {tensor_of(run, part(operation, 2011)), tensor_of(run, part(operation, 2012))};
    int64_t zero[AXES] = {0}, dims[AXES], count = volume(x) / x->dims[kept];
    memcpy(dims, x->dims, sizeof dims);
    dims[kept] = 1;
    for (int64_t group = 0; group < x->dims[kept]; group++) {
        int64_t index[AXES] = {0}, own[AXES] = {0};
        own[kept] = group;
        double sum = 0, spread = 0;
#define EACH(statement)                                                                                                \
    do {                                                                                                               \
        int64_t at[AXES];                                                                                              \
        memcpy(at, index, sizeof at);                                                                                  \
        at[kept] = group;                                                                                              \
        statement;                                                                                                     \
    } while (next(dims, x->rank, index))
        EACH(sum += load(x, at));
        double mean = mode == 4 ? 0 : sum / (double)count;
        EACH(spread += (load(x, at) - mean) * (load(x, at) - mean));
        double variance = spread / (double)count, inverse = 1 / sqrt(variance + load(epsilon, zero));
        EACH(store(y, at, (load(x, at) - mean) * inverse * load(scale, at) + (bias ? load(bias, at) : 0)));
        if (mean_to) store(mean_to, own, mean);
        if (inverse_to) store(inverse_to, own, inverse);
        double new[] = {mean, spread / (double)(count > 1 ? count - 1 : 1)};
        for (int each = 0; each < 2; each++)
            if (before[each] && after[each] && factor) {
                double part = load(factor, zero);
                store(after[each], own, (1 - part) * load(before[each], own) + part * new[each]);
            }
    }
}

static void norm_back(state *run, const descriptor *operation) {
    int mode = code(operation, 2100), kept = mode == 2;
    const tensor *x = tensor_of(run, part(operation, 2101)), *mean = tensor_of(run, part(operation, 2102));
    const tensor *inverse = tensor_of(run, part(operation, 2103)), *dy = tensor_of(run, part(operation, 2104));
    const tensor *scale = tensor_of(run, part(operation, 2105));
    tensor *dx = tensor_of(run, part(operation, 2109)), *dscale = tensor_of(run, part(operation, 2107));
    tensor *dbias = tensor_of(run, part(operation, 2108));
    int64_t dims[AXES], count = volume(x) / x->dims[kept];
    memcpy(dims, x->dims, sizeof dims);
    dims[kept] = 1;
    double *sums = calloc((size_t)volume(scale) * 2, 8);
    for (int64_t group = 0; group < x->dims[kept]; group++) {
        int64_t index[AXES] = {0};
        double shift = 0, along = 0;
#define UNIT ((load(x, at) - (mean ? load(mean, at) : 0)) * load(inverse, at))
        EACH(shift += load(dy, at) * load(scale, at));
        EACH(along += load(dy, at) * load(scale, at) * UNIT);
        if (mode == 4) shift = 0;
        EACH(store(dx, at,
                   load(inverse, at) *
                       (load(dy, at) * load(scale, at) - shift / (double)count - UNIT * along / (double)count)));
        EACH(int64_t flat = 0; for (int axis = 0; axis < scale->rank; axis++) flat =
                 flat * scale->dims[axis] + (scale->dims[axis] == 1 ? 0 : at[axis]);
             sums[2 * flat] += load(dy, at) * UNIT; sums[2 * flat + 1] += load(dy, at));
    }
    int64_t index[AXES] = {0}, at = 0;
    do {
        store(dscale, index, sums[2 * at]);
        if (dbias) store(dbias, index, sums[2 * at + 1]);
        at++;
    } while (next(scale->dims, scale->rank, index));
    free(sums);
}

size_t cudnnGetVersion(void) { return 91900; }
size_t cudnnGetCudartVersion(void) { return 99000; }
const char *cudnnGetErrorString(int status) { return status ? "CUDNN_STATUS_STANDIN" : "CUDNN_STATUS_SUCCESS"; }
void cudnnGetLastErrorString(char *text, size_t size) { snprintf(text, size, "%s", words); }
int cudnnCreate(void **handle) { return *handle = malloc(1), SUCCESS; }
int cudnnDestroy(void *handle) { return free(handle), SUCCESS; }
int cudnnSetStream(void *handle, void *stream) { return (void)handle, (void)stream, SUCCESS; }

int cudnnBackendCreateDescriptor(int kind, void **out) {
    descriptor *new = calloc(1, sizeof *new);
    new->kind = kind;
    new->holders = 1;
    *out = new;
    return SUCCESS;
}

int cudnnBackendDestroyDescriptor(void *which) { return release(which), SUCCESS; }
int cudnnBackendSetAttribute(void *which, int name, int type, int64_t count, const void *elements) {
    return set(which, name, type, count, elements);
}

int cudnnBackendFinalize(void *finalized) {
    const descriptor *which = finalized;
    if (which->kind == DEVICE) return refuse("the device cannot be described");
    if (which->kind == TENSOR && code(which, 901) > BOOLEAN) return refuse("8-bit floats");
    if (which->kind == REDUCTION_SETTINGS && code(which, 1600) > 4) return refuse("such a reduction needs the older interface");
    if (which->kind != GRAPH) return SUCCESS;
    const attribute *operations = find(which, 801);
    const char *most = getenv("CUDNN_STANDIN_MOST");
    if (most && operations->count > atol(most)) return refuse("too many operations");
    return SUCCESS;
}

int cudnnBackendGetAttribute(void *which, int name, int type, int64_t room, int64_t *count, void *elements) {
    static const int tensor_cores = 0;
    (void)type;
    *count = 0;
    if (name == 202) { /* two configurations, by the first heuristic only */
        *count = code(which, 200) == 3 ? 2 : 0;
        for (int64_t at = 0; at < room && at < *count; at++) {
            descriptor *config = ((descriptor **)elements)[at];
            set(config, 201, DESCRIPTOR_TYPE, 1, find(which, 201)->bytes);
            if (at == 0) set(config, 1303, 11, 1, &tensor_cores);
        }
    } else if (name == 300) {
        const attribute *notes = find(which, 1303);
        if (notes) set(*(descriptor **)elements, 1303, 11, 1, notes->bytes);
        *count = 1;
    } else if (name == 1303) {
        const attribute *notes = find(which, 1303);
        if (notes) memcpy(elements, notes->bytes, 4), *count = 1;
    } else if (name == 402) {
        *(int64_t *)elements = 0;
        *count = 1;
    } else if (name == 405) {
        return refuse("plans cannot be written");
    }
    return SUCCESS;
}

int cudnnBackendExecute(void *handle, void *plan, void *pack) {
    (void)handle;
    state *run = calloc(1, sizeof *run);
    run->uids = find(pack, 1000), run->addresses = find(pack, 1001);
    run->is_fast = find(part(plan, 401), 1303) != NULL;
    const attribute *operations = find(part(part(plan, 401), 201), 801);
    for (int64_t at = 0; at < operations->count; at++) {
        const descriptor *operation = ((descriptor **)operations->bytes)[at];
        switch (operation->kind) {
        case POINTWISE: pointwise(run, operation); break;
        case CONVOLUTION: case TO_FILTER: case TO_DATA: convolution(run, operation); break;
        case MATMUL: matmul(run, operation); break;
        case REDUCTION:
            reduce(code(part(operation, 1612), 1600), tensor_of(run, part(operation, 1610)),
                   tensor_of(run, part(operation, 1611)));
            break;
        case POOL: pool(run, operation, 0); break;
        case POOL_BACK: pool(run, operation, 1); break;
        case NORM: norm(run, operation); break;
        case NORM_BACK: norm_back(run, operation); break;
        default: abort();
        }
    }
    for (int at = 0; at < run->made_count; at++) free(run->made[at]);
    free(run);
    return SUCCESS;
}

/* The older interface. */
static long older;
long standin_older(void) { return older; }

int cudnnCreateTensorDescriptor(void **out) { return *out = calloc(1, sizeof(tensor)), SUCCESS; }
int cudnnDestroyTensorDescriptor(void *which) { return free(which), SUCCESS; }
int cudnnSetTensorNdDescriptor(void *which, int type, int rank, const int *dims, const int *strides) {
    tensor *to = which;
    if (rank < 4 || rank > AXES) return refuse("a rank below four");
    to->rank = rank, to->type = type;
    for (int axis = 0; axis < rank; axis++) to->dims[axis] = dims[axis], to->strides[axis] = strides[axis];
    return SUCCESS;
}

int cudnnTransformTensor(void *handle, const void *alpha, void *from, const void *x, const void *beta, void *to, void *y) {
    tensor source = *(tensor *)from, target = *(tensor *)to;
    int factors = source.type == DOUBLE ? DOUBLE : FLOAT;
    int64_t index[AXES] = {0};
    (void)handle;
    if (get(alpha, factors, 0) != 1 || get(beta, factors, 0) != 0) return refuse("other factors");
    source.memory = (void *)(uintptr_t)x, target.memory = y;
    do store(&target, index, load(&source, index));
    while (next(target.dims, target.rank, index));
    older++;
    return SUCCESS;
}

int cudnnCreateReduceTensorDescriptor(void **out) { return *out = calloc(1, sizeof(int)), SUCCESS; }
int cudnnDestroyReduceTensorDescriptor(void *which) { return free(which), SUCCESS; }
int cudnnSetReduceTensorDescriptor(void *which, int how, int type, int nan, int indices, int index_type) {
    (void)type, (void)index_type;
    *(int *)which = how;
    return nan == 1 && !indices ? SUCCESS : refuse("indices or other numbers");
}
int cudnnGetReductionWorkspaceSize(void *handle, void *which, void *from, void *to, size_t *bytes) {
    (void)handle, (void)which, (void)from, (void)to;
    return *bytes = 512, SUCCESS;
}
int cudnnReduceTensor(void *handle, void *which, void *indices, size_t index_bytes, void *workspace, size_t bytes,
                      const void *alpha, void *from, const void *x, const void *beta, void *to, void *y) {
    tensor source = *(tensor *)from, target = *(tensor *)to;
    int factors = source.type == DOUBLE ? DOUBLE : FLOAT;
    (void)handle, (void)indices, (void)index_bytes;
    if (!workspace || bytes != 512) return refuse("a missing workspace");
    if (get(alpha, factors, 0) != 1 || get(beta, factors, 0) != 0) return refuse("other factors");
    memset(workspace, 0xff, bytes);
    source.memory = (void *)(uintptr_t)x, target.memory = y;
    reduce(*(int *)which, &source, &target);
    older++;
    return SUCCESS;
}
