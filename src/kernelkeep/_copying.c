/* Copies large host arrays with several threads.
 *
 *     copy(target, origin, helpers)     to the beginning of the target; the two do not overlap
 *
 * The calling thread begins at once and takes piece after piece; threads that wake up meanwhile take pieces too. So a helper that
 * is late, because the machine is busy, delays nothing. The interpreter's lock is released, and no helper ever needs it.
 *
 * The helpers are threads of the process, made when they are first needed, and sleep when there is nothing to do. They take no
 * signals. A forked child has none of them and makes its own. A second copy at the same time is made by its caller alone.
 *
 * Stores past the caches (AVX, non-temporal) were slower with any number of threads, by a third on an Intel Xeon.
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

#define MOST_HELPERS 31
#define PIECE ((size_t)128 << 10)

static struct {
    char *target;
    const char *origin;
    size_t nbytes;
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

/* Take pieces until none is left. Only while the job is open, or for a helper that has entered. */
static void
copy_pieces(void)
{
    for (;;) {
        const size_t at = atomic_fetch_add_explicit(&job.taken, PIECE, memory_order_relaxed);
        if (at >= job.nbytes)
            return;
        const size_t rest = job.nbytes - at;
        memcpy(job.target + at, job.origin + at, rest < PIECE ? rest : PIECE);
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
copy_together(char *target, const char *origin, size_t nbytes, int helpers)
{
    if (helpers < 1 || nbytes <= PIECE || pthread_mutex_trylock(&copying)) {
        memcpy(target, origin, nbytes);
        return;
    }
    make_helpers(helpers);
    pthread_mutex_lock(&lock);
    job.target = target;
    job.origin = origin;
    job.nbytes = nbytes;
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
    int helpers;
    if (!PyArg_ParseTuple(args, "w*y*i", &target, &origin, &helpers))
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
        copy_together(target.buf, origin.buf, (size_t)origin.len, helpers);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&target);
    PyBuffer_Release(&origin);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"copy", copy, METH_VARARGS, "copy(target, origin, helpers): copy a buffer to the beginning of another."},
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
    pthread_atfork(NULL, NULL, forget_helpers);
#ifdef Py_GIL_DISABLED
    PyUnstable_Module_SetGIL(made, Py_MOD_GIL_NOT_USED);
#endif
    return made;
}
