/* A thread that makes C calls for others.
 *
 * An OpenGL context is current in one thread at a time, and going from one thread to another costs as much as a launch. This
 * thread keeps it: others give it calls to make, and need not wait for them. `devices/opengl/calls.py` uses it.
 *
 *     caller = Caller(idle_function, look_nanoseconds, wait_nanoseconds)
 *     caller.make([(address, 1, 2), (address | NOT_ZERO, 3)], wait)      # → the result of the last call, or None without wait
 *     make_here([…])                                                     # the same in the calling thread, always at once
 *
 * A call has an address and at most 10 integers, pointers or bytes, passed as 64 bits; bytes are copied. Flags in the address: a
 * call with NOT_ZERO must not return 0, one with ZERO must. The first that does otherwise is a failure, which `failure` tells
 * once. `idle_function` is called without arguments when calls were made and no more have come for a moment.
 *
 * One thread at a time may use a Caller: the lock is with who has it. Nothing here touches Python outside of the calls of Python.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if !defined(__linux__) || !(defined(__x86_64__) || defined(__aarch64__))
#error "only for 64-bit Linux on x86 and ARM"
#endif

#define MOST 10
#define ROOM 4096 /* calls that wait; a power of two */
#define NOT_ZERO (1ull << 56)
#define ZERO (1ull << 57)
#define ADDRESS ((1ull << 56) - 1)

typedef uint64_t U;
typedef U (*Function)(U, U, U, U, U, U, U, U, U, U);

typedef struct {
    U function; /* the address and the flags */
    U arguments[MOST];
    void *copied; /* bytes that are freed after the call */
} Call;

typedef struct {
    PyObject_HEAD
    Call *calls;
    U given, made;  /* how many calls, ever; atomic */
    U result;       /* of the last call */
    U failure;      /* of the first that failed: what it returned, with the flag it had; atomic */
    Function idle;  /* or NULL */
    U look, wait;   /* nanoseconds that the thread looks for calls, and others for its answers, before they sleep */
    int stopping, sleeping, waiting; /* atomic */
    int running, abandoned;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t more, done;
} Caller;

static U
nanoseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (U)now.tv_sec * 1000000000u + (U)now.tv_nsec;
}

static void
pause_briefly(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#else
    __asm__ volatile("yield");
#endif
}

static U
make(Call *call, U *failure)
{
    const U *a = call->arguments, flags = call->function & ~ADDRESS;
    const Function function = (Function)(uintptr_t)(call->function & ADDRESS);
    const U result = function(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9]);
    free(call->copied);
    call->copied = NULL;
    if (flags && ((uint32_t)result != 0) != (flags == NOT_ZERO)) {
        U none = 0;
        __atomic_compare_exchange_n(failure, &none, flags | (uint32_t)result, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
    }
    return result;
}

/* --- the thread */

#define LOAD(place) __atomic_load_n(&(place), __ATOMIC_SEQ_CST)
#define STORE(place, value) __atomic_store_n(&(place), (value), __ATOMIC_SEQ_CST)
#define IDLE_NANOSECONDS 3000

static void *
work(void *argument)
{
    Caller *caller = argument;
    int busy = 0; /* calls were made since `idle` was called */
    for (;;) {
        U since = 0;
        while (LOAD(caller->given) == caller->made) {
            if (LOAD(caller->stopping))
                return NULL;
            const U now = nanoseconds();
            if (since == 0)
                since = now;
            if (busy && now - since > IDLE_NANOSECONDS) {
                busy = 0;
                if (caller->idle != NULL)
                    caller->idle(0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
            }
            if (now - since <= caller->look || busy) {
                pause_briefly();
                continue;
            }
            pthread_mutex_lock(&caller->lock);
            STORE(caller->sleeping, 1);
            while (LOAD(caller->given) == caller->made && !LOAD(caller->stopping))
                pthread_cond_wait(&caller->more, &caller->lock);
            STORE(caller->sleeping, 0);
            pthread_mutex_unlock(&caller->lock);
        }
        const U given = LOAD(caller->given);
        U made = caller->made;
        while (made != given) {
            caller->result = make(&caller->calls[made % ROOM], &caller->failure);
            STORE(caller->made, ++made);
        }
        busy = 1;
        if (LOAD(caller->waiting)) {
            pthread_mutex_lock(&caller->lock);
            pthread_cond_broadcast(&caller->done);
            pthread_mutex_unlock(&caller->lock);
        }
    }
}

/* Wait, without Python's lock, until `until` calls were made. */
static void
wait_for(Caller *caller, U until)
{
    const U start = nanoseconds();
    while (LOAD(caller->made) < until) {
        if (nanoseconds() - start <= caller->wait) {
            pause_briefly();
            continue;
        }
        pthread_mutex_lock(&caller->lock);
        STORE(caller->waiting, 1);
        while (LOAD(caller->made) < until)
            pthread_cond_wait(&caller->done, &caller->lock);
        STORE(caller->waiting, 0);
        pthread_mutex_unlock(&caller->lock);
    }
}

/* --- what Python calls */

/* A tuple as a call; -1 with an exception. */
static int
convert(PyObject *from, Call *to)
{
    memset(to, 0, sizeof *to);
    if (!PyTuple_Check(from) || PyTuple_GET_SIZE(from) < 1 || PyTuple_GET_SIZE(from) > MOST + 1) {
        PyErr_Format(PyExc_TypeError, "a call is a tuple of an address and at most %d arguments", MOST);
        return -1;
    }
    to->function = PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(from, 0));
    for (Py_ssize_t i = 1; i < PyTuple_GET_SIZE(from) && !PyErr_Occurred(); i++) {
        PyObject *argument = PyTuple_GET_ITEM(from, i);
        if (PyBytes_Check(argument) && to->copied == NULL) {
            to->copied = malloc((size_t)PyBytes_GET_SIZE(argument) + 1);
            if (to->copied == NULL) {
                PyErr_NoMemory();
                break;
            }
            memcpy(to->copied, PyBytes_AS_STRING(argument), (size_t)PyBytes_GET_SIZE(argument));
            to->arguments[i - 1] = (U)(uintptr_t)to->copied;
        } else if (argument != Py_None)
            to->arguments[i - 1] = PyLong_AsUnsignedLongLongMask(argument);
    }
    if (PyErr_Occurred()) {
        free(to->copied);
        to->copied = NULL;
        return -1;
    }
    return 0;
}

static PyObject *
caller_make(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Caller *caller = (Caller *)self;
    if (count != 2 || !PyList_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "make takes a list of calls, and whether to wait for them");
        return NULL;
    }
    const int wait = PyObject_IsTrue(args[1]);
    if (wait < 0)
        return NULL;
    if (caller->abandoned || !caller->running) {
        PyErr_SetString(PyExc_RuntimeError, "this thread was stopped");
        return NULL;
    }
    U given = caller->given;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(args[0]); i++) {
        if (given - LOAD(caller->made) >= ROOM) { /* have those made that are there */
            STORE(caller->given, given);
            Py_BEGIN_ALLOW_THREADS
            pthread_mutex_lock(&caller->lock);
            pthread_cond_signal(&caller->more);
            pthread_mutex_unlock(&caller->lock);
            wait_for(caller, given - ROOM / 2);
            Py_END_ALLOW_THREADS
        }
        if (convert(PyList_GET_ITEM(args[0], i), &caller->calls[given % ROOM]) < 0)
            break; /* those before are made */
        given++;
    }
    STORE(caller->given, given);
    if (LOAD(caller->sleeping)) {
        pthread_mutex_lock(&caller->lock);
        pthread_cond_signal(&caller->more);
        pthread_mutex_unlock(&caller->lock);
    }
    if (PyErr_Occurred())
        return NULL;
    if (!wait)
        Py_RETURN_NONE;
    Py_BEGIN_ALLOW_THREADS
    wait_for(caller, given);
    Py_END_ALLOW_THREADS
    return PyLong_FromUnsignedLongLong(caller->result);
}

static PyObject *
caller_stop(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    Caller *caller = (Caller *)self;
    if (caller->running && !caller->abandoned) {
        caller->running = 0;
        Py_BEGIN_ALLOW_THREADS
        STORE(caller->stopping, 1);
        pthread_mutex_lock(&caller->lock);
        pthread_cond_signal(&caller->more);
        pthread_mutex_unlock(&caller->lock);
        pthread_join(caller->thread, NULL);
        Py_END_ALLOW_THREADS
    }
    Py_RETURN_NONE;
}

static PyObject *
caller_abandon(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    ((Caller *)self)->abandoned = 1;
    Py_RETURN_NONE;
}

static PyObject *
caller_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    unsigned long long idle, look, wait;
    if (!PyArg_ParseTuple(args, "KKK", &idle, &look, &wait))
        return NULL;
    Caller *caller = (Caller *)type->tp_alloc(type, 0);
    if (caller == NULL)
        return NULL;
    caller->idle = (Function)(uintptr_t)idle;
    caller->look = look;
    caller->wait = wait;
    pthread_mutex_init(&caller->lock, NULL);
    pthread_cond_init(&caller->more, NULL);
    pthread_cond_init(&caller->done, NULL);
    caller->calls = calloc(ROOM, sizeof(Call));
    if (caller->calls == NULL || pthread_create(&caller->thread, NULL, work, caller) != 0) {
        Py_DECREF(caller);
        return PyErr_NoMemory();
    }
    caller->running = 1;
    return (PyObject *)caller;
}

static void
caller_dealloc(PyObject *self)
{
    Caller *caller = (Caller *)self;
    Py_XDECREF(caller_stop(self, NULL));
    if (!caller->abandoned) /* in a forked child others may have been in the middle of it */
        free(caller->calls);
    Py_TYPE(self)->tp_free(self);
}

static PyObject *
caller_failure(PyObject *self, void *Py_UNUSED(closure))
{
    return PyLong_FromUnsignedLongLong(__atomic_exchange_n(&((Caller *)self)->failure, 0, __ATOMIC_ACQ_REL));
}

static PyMethodDef methods[] = {
    {"make", (PyCFunction)(void (*)(void))caller_make, METH_FASTCALL, "Have calls made; the last one's result if it waits."},
    {"stop", caller_stop, METH_NOARGS, "Make what was given, and end the thread."},
    {"abandon", caller_abandon, METH_NOARGS, "The thread is not in this forked process."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef getset[] = {
    {"failure", caller_failure, NULL, "Its flag and what the first failed call returned, told once; 0 if none failed.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyTypeObject CallerType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "kernelkeep._caller.Caller",
    .tp_doc = PyDoc_STR("A thread that makes C calls for others."),
    .tp_basicsize = sizeof(Caller),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = caller_new,
    .tp_dealloc = caller_dealloc,
    .tp_methods = methods,
    .tp_getset = getset,
};

#define FEW 32

static PyObject *
make_here(PyObject *Py_UNUSED(self), PyObject *calls)
{
    Call few[FEW];
    U result = 0, failure = 0;
    if (!PyList_Check(calls)) {
        PyErr_SetString(PyExc_TypeError, "make_here takes a list of calls");
        return NULL;
    }
    for (Py_ssize_t at = 0; at < PyList_GET_SIZE(calls);) {
        int count = 0;
        for (; count < FEW && at < PyList_GET_SIZE(calls); count++, at++)
            if (convert(PyList_GET_ITEM(calls, at), &few[count]) < 0) {
                while (count)
                    free(few[--count].copied);
                return NULL;
            }
        Py_BEGIN_ALLOW_THREADS
        for (int i = 0; i < count; i++)
            result = make(&few[i], &failure);
        Py_END_ALLOW_THREADS
    }
    return Py_BuildValue("KK", result, failure);
}

static PyMethodDef functions[] = {
    {"make_here", make_here, METH_O, "Make calls in this thread; returns the last one's result, and the failure."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "kernelkeep._caller",
    .m_doc = "A thread that makes C calls for others.",
    .m_size = -1,
    .m_methods = functions,
};

PyMODINIT_FUNC
PyInit__caller(void)
{
    PyObject *made = PyModule_Create(&module);
    if (made == NULL)
        return NULL;
#ifdef Py_GIL_DISABLED
    PyUnstable_Module_SetGIL(made, Py_MOD_GIL_NOT_USED);
#endif
    if (PyModule_AddType(made, &CallerType) < 0 ||
        PyModule_AddObject(made, "NOT_ZERO", PyLong_FromUnsignedLongLong(NOT_ZERO)) < 0 ||
        PyModule_AddObject(made, "ZERO", PyLong_FromUnsignedLongLong(ZERO)) < 0) {
        Py_DECREF(made);
        return NULL;
    }
    return made;
}
