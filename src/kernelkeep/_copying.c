/* Copies large host arrays with several threads.
 *
 *     copy(target, origin, helpers, streaming)     to the beginning of the target; the two do not overlap
 *
 * The calling thread begins at once and takes piece after piece; threads that wake up meanwhile take pieces too. So a helper that
 * is late, because the machine is busy, delays nothing. The interpreter's lock is released, and no helper ever needs it.
 *
 * With `streaming` the target is written past the caches: right for memory that a device reads next and the host does not. Alone such
 * a copy is slower; in a stream of batches to an H200, which reads the memory meanwhile, it took 0.27 ms instead of 0.41 ms.
 *
 * The helpers are threads of the process, made when they are first needed, and sleep when there is nothing to do. They take no
 * signals. A forked child has none of them and makes its own. A second copy at the same time is made by its caller alone.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#if !defined(__linux__) || !(defined(__x86_64__) || defined(__aarch64__))
#error "only for 64-bit Linux on x86 and ARM"
#endif
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define MOST_HELPERS 31
#define PIECE ((size_t)128 << 10)

static struct {
    char *target;
    const char *origin;
    size_t nbytes;
    int streaming;
    int helpers;         /* that may take part */
    int entered;         /* that did */
    int active;          /* that still do */
    int open;            /* whether one may still enter */
    atomic_size_t taken; /* bytes that somebody copies or has copied */
} job;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;    /* of everything above but `taken` */
static pthread_mutex_t copying = PTHREAD_MUTEX_INITIALIZER; /* one copy at a time has the helpers */
static pthread_cond_t begun = PTHREAD_COND_INITIALIZER;
static pthread_cond_t finished = PTHREAD_COND_INITIALIZER;
static unsigned long jobs; /* that have begun */
static int threads;       /* that were made in this process */

/* --- copying a piece */

#if defined(__x86_64__)
__attribute__((target("avx"))) static void
stream_piece(char *target, const char *origin, size_t nbytes)
{
    size_t head = -(uintptr_t)target & 63;
    if (head > nbytes)
        head = nbytes;
    memcpy(target, origin, head);
    size_t at = head;
    for (; at + 128 <= nbytes; at += 128) {
        _mm_prefetch(origin + at + 1024, _MM_HINT_NTA);
        _mm_prefetch(origin + at + 1088, _MM_HINT_NTA);
        const __m256i a = _mm256_loadu_si256((const __m256i *)(origin + at));
        const __m256i b = _mm256_loadu_si256((const __m256i *)(origin + at + 32));
        const __m256i c = _mm256_loadu_si256((const __m256i *)(origin + at + 64));
        const __m256i d = _mm256_loadu_si256((const __m256i *)(origin + at + 96));
        _mm256_stream_si256((__m256i *)(target + at), a);
        _mm256_stream_si256((__m256i *)(target + at + 32), b);
        _mm256_stream_si256((__m256i *)(target + at + 64), c);
        _mm256_stream_si256((__m256i *)(target + at + 96), d);
    }
    memcpy(target + at, origin + at, nbytes - at);
    _mm_sfence(); /* the device may be told to read it next */
}
#endif

static int can_stream;

static void
copy_piece(char *target, const char *origin, size_t nbytes, int streaming)
{
#if defined(__x86_64__)
    if (streaming && can_stream) {
        stream_piece(target, origin, nbytes);
        return;
    }
#endif
    memcpy(target, origin, nbytes);
}

/* Take pieces until none is left. Only while the job is open, or for a helper that has entered. */
static void
copy_pieces(void)
{
    for (;;) {
        const size_t at = atomic_fetch_add_explicit(&job.taken, PIECE, memory_order_relaxed);
        if (at >= job.nbytes)
            return;
        const size_t rest = job.nbytes - at;
        copy_piece(job.target + at, job.origin + at, rest < PIECE ? rest : PIECE, job.streaming);
    }
}

/* --- the helpers */

static void *
help(void *unused)
{
    unsigned long seen = 0;
    (void)unused;
    for (;;) {
        pthread_mutex_lock(&lock);
        while (jobs == seen)
            pthread_cond_wait(&begun, &lock);
        seen = jobs;
        if (job.open && job.entered < job.helpers) {
            job.entered++;
            job.active++;
            pthread_mutex_unlock(&lock);
            copy_pieces();
            pthread_mutex_lock(&lock);
            if (--job.active == 0)
                pthread_cond_signal(&finished);
        }
        pthread_mutex_unlock(&lock);
    }
    return NULL;
}

/* Make helpers until there are so many. Called with `copying` held. */
static void
make_helpers(int wanted)
{
    pthread_attr_t detached;
    sigset_t all, before;
    if (threads >= wanted || pthread_attr_init(&detached))
        return;
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&detached, 256 << 10);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (threads < wanted) {
        pthread_t made;
        if (pthread_create(&made, &detached, help, NULL))
            break; /* the system gives no more: fewer do it too */
        threads++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&detached);
}

static void
forget_helpers(void) /* in a forked child */
{
    pthread_mutex_init(&lock, NULL);
    pthread_mutex_init(&copying, NULL);
    pthread_cond_init(&begun, NULL);
    pthread_cond_init(&finished, NULL);
    memset(&job, 0, sizeof job);
    threads = 0;
}

static void
copy_together(char *target, const char *origin, size_t nbytes, int helpers, int streaming)
{
    if (helpers < 1 || nbytes <= PIECE || pthread_mutex_trylock(&copying)) {
        copy_piece(target, origin, nbytes, streaming);
        return;
    }
    make_helpers(helpers);
    pthread_mutex_lock(&lock);
    job.target = target;
    job.origin = origin;
    job.nbytes = nbytes;
    job.streaming = streaming;
    job.helpers = helpers;
    job.entered = 0;
    job.open = 1;
    atomic_store_explicit(&job.taken, 0, memory_order_relaxed);
    jobs++;
    pthread_cond_broadcast(&begun);
    pthread_mutex_unlock(&lock);
    copy_pieces();
    pthread_mutex_lock(&lock);
    job.open = 0;
    while (job.active)
        pthread_cond_wait(&finished, &lock);
    pthread_mutex_unlock(&lock);
    pthread_mutex_unlock(&copying);
}

/* --- for Python */

static PyObject *
copy(PyObject *Py_UNUSED(self), PyObject *args)
{
    Py_buffer target, origin;
    int helpers, streaming;
    if (!PyArg_ParseTuple(args, "w*y*ip", &target, &origin, &helpers, &streaming))
        return NULL;
    if (target.len < origin.len || helpers < 0 || helpers > MOST_HELPERS) {
        if (target.len < origin.len)
            PyErr_Format(PyExc_ValueError, "origin must have at most %zd bytes, as target has, got %zd", target.len, origin.len);
        else
            PyErr_Format(PyExc_ValueError, "helpers must be between 0 and %d, got %d", MOST_HELPERS, helpers);
        PyBuffer_Release(&target);
        PyBuffer_Release(&origin);
        return NULL;
    }
    if (origin.len <= (Py_ssize_t)PIECE) /* too short to let another thread run for it */
        memcpy(target.buf, origin.buf, (size_t)origin.len);
    else {
        Py_BEGIN_ALLOW_THREADS
        copy_together(target.buf, origin.buf, (size_t)origin.len, helpers, streaming);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&target);
    PyBuffer_Release(&origin);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"copy", copy, METH_VARARGS, "copy(target, origin, helpers, streaming): copy a buffer to the beginning of another."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "kernelkeep._copying",
    .m_doc = "Copies large host arrays with several threads.",
    .m_size = -1,
    .m_methods = methods,
};

PyMODINIT_FUNC
PyInit__copying(void)
{
    PyObject *made = PyModule_Create(&module);
    if (made == NULL)
        return NULL;
#if defined(__x86_64__)
    can_stream = __builtin_cpu_supports("avx");
#endif
    pthread_atfork(NULL, NULL, forget_helpers);
#ifdef Py_GIL_DISABLED
    PyUnstable_Module_SetGIL(made, Py_MOD_GIL_NOT_USED);
#endif
    return made;
}
