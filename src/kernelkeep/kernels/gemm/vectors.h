// What gemm and the convolution, the same product with a B that is gathered from an image, have in common.

// PoCL calls vload16 and vstore16 as functions, which empties the registers; through a type that may lie anywhere the
// same access is one instruction, or two where registers hold 8 floats. LESSER, as min may be a call, too.
typedef float8 __attribute__((aligned(4))) eight;
typedef float16 __attribute__((aligned(4))) sixteen;
#define LESSER(x, y) ((x) < (y) ? (x) : (y))
#define NR (NV * 16)
// A fair share of a length for each of a number of parts, in multiples of a step: the cores finish together.
#define SHARE(length, parts, step) (((length) + (parts) * (step) - 1) / ((parts) * (step)) * (step))
// Rows an odd number of cache lines apart use all sets of the cache. The 16 also take up a share rounded up to NR.
#define PITCH (NC + 16)
