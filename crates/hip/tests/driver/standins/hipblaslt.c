/* A stand-in for hipBLASLt: plain products in double precision on memory that the processor can read.
 *
 * It computes during the call and not in the order of the stream, so callers finish earlier work first. It answers
 * with hipBLASLt's numbers, and rejects attributes of another size than hipBLASLt documents.
 *
 *   types of 8-bit floats                     no kernel (status 7)
 *   bytes that are not accumulated as integers   invalid value (status 3)
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, INVALID_VALUE = 3, NOT_SUPPORTED = 7 };
enum { F32 = 0, F64 = 1, F16 = 2, I8 = 3, I32 = 10, BF16 = 14, F8_E4M3 = 28, F8_E5M2 = 29 };
enum { COMPUTE_I32 = 9, TRANSPOSED = 112, RELU = 2, BIAS = 4, GELU = 32 };

typedef struct {
    int compute, scale, transposed[2], epilogue, bias_type;
    const void *bias;
} description;

typedef struct {
    int type, batch;
    uint64_t rows, cols;
    int64_t leading, stride;
} layout;

typedef struct {
    uint64_t workspace;
} preference;

typedef struct {
    struct {
        uint64_t number, unused, most_workspace;
    } algorithm;
    uint64_t workspace;
    int state;
    float waves;
    int reserved[4];
} result;
_Static_assert(sizeof(result) == 56, "as hipBLASLt declares it");

static const uint64_t NUMBER = 0x5a17d1;
static long alive;

/* For the tests: objects that were not destroyed. */
long standin_alive(void) { return alive; }

static int made(void **out, size_t bytes) {
    *out = calloc(1, bytes);
    alive++;
    return SUCCESS;
}

static int destroyed(void *object) {
    free(object);
    alive--;
    return SUCCESS;
}

static int stored(void *to, size_t wanted, const void *value, size_t bytes) {
    if (bytes != wanted) return INVALID_VALUE;
    memcpy(to, value, bytes);
    return SUCCESS;
}

int hipblasLtCreate(void **handle) { return made(handle, 1); }
int hipblasLtDestroy(void *handle) { return destroyed(handle); }
int hipblasLtMatmulDescDestroy(void *object) { return destroyed(object); }
int hipblasLtMatrixLayoutDestroy(void *object) { return destroyed(object); }
int hipblasLtMatmulPreferenceDestroy(void *object) { return destroyed(object); }
int hipblasLtMatmulPreferenceCreate(void **out) { return made(out, sizeof(preference)); }

int hipblasLtMatmulDescCreate(void **out, int compute, int scale) {
    made(out, sizeof(description));
    ((description *)*out)->compute = compute;
    ((description *)*out)->scale = scale;
    return SUCCESS;
}

int hipblasLtMatrixLayoutCreate(void **out, int type, uint64_t rows, uint64_t cols, int64_t leading) {
    made(out, sizeof(layout));
    *(layout *)*out = (layout){type, 1, rows, cols, leading, 0};
    return SUCCESS;
}

int hipblasLtMatmulDescSetAttribute(void *object, int name, const void *value, size_t bytes) {
    description *to = object;
    switch (name) {
    case 0: return stored(&to->transposed[0], 4, value, bytes);
    case 1: return stored(&to->transposed[1], 4, value, bytes);
    case 2: return stored(&to->epilogue, 4, value, bytes);
    case 3: return stored(&to->bias, 8, value, bytes);
    case 4: return stored(&to->bias_type, 4, value, bytes);
    default: return INVALID_VALUE;
    }
}

int hipblasLtMatrixLayoutSetAttribute(void *object, int name, const void *value, size_t bytes) {
    layout *to = object;
    switch (name) {
    case 0: return stored(&to->batch, 4, value, bytes);
    case 1: return stored(&to->stride, 8, value, bytes);
    default: return INVALID_VALUE;
    }
}

int hipblasLtMatmulPreferenceSetAttribute(void *object, int name, const void *value, size_t bytes) {
    return name == 1 ? stored(&((preference *)object)->workspace, 8, value, bytes) : INVALID_VALUE;
}

/* Four results: one without a workspace, one that cannot be used, one that needs 1 MiB, and one that needs a byte more
 * than is offered. */
int hipblasLtMatmulAlgoGetHeuristic(void *handle, void *desc, void *a, void *b, void *c, void *d, void *prefers,
                                    int want, result *results, int *found) {
    const description *what = desc;
    const layout *first = a;
    (void)handle, (void)b, (void)c, (void)d;
    if (first->type == F8_E4M3 || first->type == F8_E5M2) return NOT_SUPPORTED;
    if (first->type == I8 && what->compute != COMPUTE_I32) return INVALID_VALUE;
    if ((what->epilogue & BIAS) && !what->bias) return INVALID_VALUE;
    const uint64_t needs[] = {0, 0, 1 << 20, ((preference *)prefers)->workspace + 1};
    *found = want < 4 ? want : 4;
    for (int at = 0; at < *found; at++) {
        results[at] = (result){.algorithm = {NUMBER + at, 0, 0}, .workspace = needs[at], .state = at == 1 ? 5 : 0};
    }
    return SUCCESS;
}

static double half(uint16_t bits) {
    int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    double size = exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24);
    return bits >> 15 ? -size : size;
}

static uint16_t to_half(double value) {
    uint16_t sign = signbit(value) ? 0x8000 : 0;
    int exponent;
    double size = frexp(fabs(value), &exponent);
    if (size == 0 || exponent < -13) return sign | (uint16_t)nearbyint(ldexp(fabs(value), 24));
    return sign + (uint16_t)((exponent + 13) << 10) + (uint16_t)nearbyint(ldexp(size, 11));
}

static double get(const void *from, int type, int64_t at) {
    uint32_t bits;
    float value;
    switch (type) {
    case F64: return ((const double *)from)[at];
    case F16: return half(((const uint16_t *)from)[at]);
    case I8: return ((const int8_t *)from)[at];
    case I32: return ((const int32_t *)from)[at];
    case BF16:
        bits = (uint32_t)((const uint16_t *)from)[at] << 16;
        memcpy(&value, &bits, 4);
        return value;
    default: return ((const float *)from)[at];
    }
}

static void put(void *to, int type, int64_t at, double value) {
    uint32_t bits;
    float rounded = (float)value;
    switch (type) {
    case F64: ((double *)to)[at] = value; break;
    case F16: ((uint16_t *)to)[at] = to_half(value); break;
    case I32: ((int32_t *)to)[at] = (int32_t)value; break;
    case BF16:
        memcpy(&bits, &rounded, 4);
        ((uint16_t *)to)[at] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
        break;
    default: ((float *)to)[at] = rounded;
    }
}

static double after(int epilogue, double value) {
    if (epilogue & RELU) return value > 0 ? value : 0;
    if (epilogue & GELU) return 0.5 * value * (1 + tanh(0.7978845608028654 * (value + 0.044715 * value * value * value)));
    return value;
}

int hipblasLtMatmul(void *handle, void *desc, const void *alpha, const void *a, void *a_layout, const void *b,
                    void *b_layout, const void *beta, const void *c, void *c_layout, void *d, void *d_layout,
                    const uint64_t *algorithm, void *workspace, size_t bytes, void *stream) {
    const description *what = desc;
    const layout *la = a_layout, *lb = b_layout, *lc = c_layout, *ld = d_layout;
    (void)handle, (void)stream;
    uint64_t number = *algorithm - NUMBER;
    if (number > 3 || number == 1 || (number == 2 && (!workspace || bytes < 1 << 20))) return INVALID_VALUE;
    double product = get(alpha, what->scale, 0), sum = get(beta, what->scale, 0);
    int at = what->transposed[0] == TRANSPOSED, bt = what->transposed[1] == TRANSPOSED;
    int64_t inner = (int64_t)(at ? la->rows : la->cols);
    for (int64_t batch = 0; batch < ld->batch; batch++)
        for (int64_t col = 0; col < (int64_t)ld->cols; col++)
            for (int64_t row = 0; row < (int64_t)ld->rows; row++) {
                double value = 0;
                for (int64_t k = 0; k < inner; k++) {
                    int64_t in_a = batch * la->stride + (at ? k + row * la->leading : row + k * la->leading);
                    int64_t in_b = batch * lb->stride + (bt ? col + k * lb->leading : k + col * lb->leading);
                    value += get(a, la->type, in_a) * get(b, lb->type, in_b);
                }
                value *= product;
                if (sum != 0) value += sum * get(c, lc->type, batch * lc->stride + row + col * lc->leading);
                if (what->epilogue & BIAS) value += get(what->bias, what->bias_type, row);
                put(d, ld->type, batch * ld->stride + row + col * ld->leading, after(what->epilogue, value));
            }
    return SUCCESS;
}
