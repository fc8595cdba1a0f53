/* Digests of blocks of 64 KiB, at several gigabytes a second on one core. `continuous/checkpoints/block_digest.py` says what they
 * are, and has the same in NumPy for where this module was not built.
 *
 *     digest_blocks(data, key, out)      16 bytes into `out` for each block of `data`; `key` has 16 bytes
 *
 * The global interpreter lock is released meanwhile, so several threads digest side by side.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "only for little-endian machines"
#endif

#define BLOCK_BYTES 65536
#define ITEMS 256  /* each takes every 256th word of a block */
#define ROUNDS 64
#define SIDE 16    /* items side by side in vector registers */

/* The loader takes the copy that this processor runs fastest. */
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__)
#define FOR_EACH_PROCESSOR __attribute__((target_clones("avx512f", "avx2", "default"), optimize("O3")))
#else
#define FOR_EACH_PROCESSOR
#endif

#define ROTATED(x, by) (((x) << (by)) | ((x) >> (32 - (by))))
#define FINISHED(x)                                                                                                            \
    x ^= x >> 16;                                                                                                              \
    x *= 0x85EBCA6Bu;                                                                                                          \
    x ^= x >> 13;                                                                                                              \
    x *= 0xC2B2AE35u;                                                                                                          \
    x ^= x >> 16

typedef uint32_t Wide __attribute__((vector_size(4 * SIDE)));

FOR_EACH_PROCESSOR static void
digest_block(const unsigned char *block, const unsigned char *next, const uint32_t *key, uint32_t *out)
{
    Wide side, sums[4] = {{0}, {0}, {0}, {0}};
    for (int i = 0; i < SIDE; i++) {
        side[i] = (uint32_t)i;
    }
    for (uint32_t first = 0; first < ITEMS; first += SIDE) {
        Wide items = side + first, words;
        Wide a = key[0] ^ (items * 0x9E3779B1u), b = key[1] ^ (items * 0x85EBCA77u);
        Wide c = key[2] ^ (items * 0xC2B2AE3Du), d = key[3] ^ (items * 0x27D4EB2Fu);
        for (int round = 0; round < ROUNDS; round++) {
            __builtin_prefetch(next + sizeof words * (first / SIDE * ROUNDS + round), 0, 2);
            memcpy(&words, block + 4 * (round * ITEMS + first), sizeof words);
            words *= 0xCC9E2D51u;
            words ^= words >> 16;
            a = ROTATED(a ^ words, 7) * 0x9E3779B1u;
            b = ROTATED(b ^ words, 11) * 0x85EBCA77u;
            c = ROTATED(c ^ words, 19) * 0xC2B2AE3Du;
            d = ROTATED(d ^ words, 23) * 0x27D4EB2Fu;
        }
        FINISHED(a);
        FINISHED(b);
        FINISHED(c);
        FINISHED(d);
        sums[0] += a;
        sums[1] += b;
        sums[2] += c;
        sums[3] += d;
    }
    for (int number = 0; number < 4; number++) {
        out[number] = 0;
        for (int i = 0; i < SIDE; i++) {
            out[number] += sums[number][i];
        }
    }
}

static PyObject *
digest_blocks(PyObject *self, PyObject *arguments)
{
    Py_buffer data, key, out;
    if (!PyArg_ParseTuple(arguments, "y*y*w*", &data, &key, &out)) {
        return NULL;
    }
    Py_ssize_t blocks = (data.len + BLOCK_BYTES - 1) / BLOCK_BYTES;
    int fits = key.len == 16 && out.len == blocks * 16;
    if (!fits) {
        PyErr_SetString(PyExc_ValueError, "key must have 16 bytes, and out 16 for each block");
    }
    else {
        Py_BEGIN_ALLOW_THREADS
        uint32_t words[4];
        memcpy(words, key.buf, sizeof words);
        for (Py_ssize_t number = 0; number < blocks; number++) {
            const unsigned char *block = (const unsigned char *)data.buf + number * BLOCK_BYTES;
            unsigned char padded[BLOCK_BYTES];
            Py_ssize_t left = data.len - number * BLOCK_BYTES;
            if (left < BLOCK_BYTES) {
                memset(padded, 0, sizeof padded);
                memcpy(padded, block, (size_t)left);
                block = padded;
            }
            uint32_t digest[4];
            /* Items take words that are a kibibyte apart, so the processor does not see by itself what comes next. */
            const unsigned char *next = left < 2 * BLOCK_BYTES ? block : block + BLOCK_BYTES;
            digest_block(block, next, words, digest);
            memcpy((unsigned char *)out.buf + number * 16, digest, sizeof digest);
        }
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&data);
    PyBuffer_Release(&key);
    PyBuffer_Release(&out);
    if (!fits) {
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"digest_blocks", digest_blocks, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, .m_name = "kernelkeep._digest", .m_size = 0, .m_methods = functions,
};

PyMODINIT_FUNC
PyInit__digest(void)
{
    PyObject *made = PyModule_Create(&module);
#ifdef Py_GIL_DISABLED
    if (made != NULL)
        PyUnstable_Module_SetGIL(made, Py_MOD_GIL_NOT_USED); /* there is no state */
#endif
    return made;
}
