/* Several C functions with all their arguments bound, called in order by one call from Python.
 *
 *     calls = BoundCalls(); calls.bind_calls(((address, (1, 2)), …)); calls.run(0)
 *
 * `run` calls them from the given one on, until one returns anything but 0: then it returns which, and what. None if all went well.
 * Only one thread at a time may use a `BoundCalls`.
 *
 *     poll(address, argument, again, seconds)     # call it until it returns anything but `again`: returns that, and whether
 *                                                 # the thread stood still meanwhile
 *
 * A thread that stood still for half a millisecond shares its core with another one, which gets it again soon: `poll` gives up then.
 *
 * Every argument is an integer or a pointer and is passed as 64 bits, which is how the C calling conventions of 64-bit
 * Linux on x86 and ARM take them; elsewhere this file does not compile, and the calls are made one by one.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#if !defined(__linux__) || !(defined(__x86_64__) || defined(__aarch64__))
#error "only for 64-bit Linux on x86 and ARM"
#endif

#define MOST 11

typedef uint64_t U;
typedef int (*Function)(U, U, U, U, U, U, U, U, U, U, U);

#define MOST_CALLS 16
#define STOOD_STILL_SECONDS 500e-6

typedef struct {
    PyObject_HEAD
    int count;
    struct {
        Function function;
        U arguments[MOST];
    } calls[MOST_CALLS];
} BoundCalls;

static PyObject *
bind_calls(PyObject *self, PyObject *calls)
{
    BoundCalls *bound = (BoundCalls *)self;
    if (!PyTuple_Check(calls) || PyTuple_GET_SIZE(calls) > MOST_CALLS) {
        PyErr_Format(PyExc_TypeError, "bind_calls takes a tuple of at most %d calls", MOST_CALLS);
        return NULL;
    }
    bound->count = 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(calls); i++) {
        PyObject *address, *arguments;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(calls, i), "OO!", &address, &PyTuple_Type, &arguments))
            return NULL;
        if (PyTuple_GET_SIZE(arguments) > MOST) {
            PyErr_Format(PyExc_TypeError, "a call has at most %d arguments", MOST);
            return NULL;
        }
        memset(&bound->calls[i], 0, sizeof bound->calls[i]);
        bound->calls[i].function = (Function)(uintptr_t)PyLong_AsUnsignedLongLong(address);
        for (Py_ssize_t j = 0; j < PyTuple_GET_SIZE(arguments); j++)
            bound->calls[i].arguments[j] = PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(arguments, j));
        if (PyErr_Occurred())
            return NULL;
        if (bound->calls[i].function == NULL) {
            PyErr_SetString(PyExc_ValueError, "the address of a function must not be 0");
            return NULL;
        }
    }
    bound->count = (int)PyTuple_GET_SIZE(calls);
    Py_RETURN_NONE;
}

static PyObject *
run_calls(PyObject *self, PyObject *first)
{
    BoundCalls *bound = (BoundCalls *)self;
    const long from = PyLong_AsLong(first);
    int at, status = 0;
    if (from == -1 && PyErr_Occurred())
        return NULL;
    if (from < 0) {
        PyErr_SetString(PyExc_ValueError, "the first call must not be negative");
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    for (at = from > bound->count ? bound->count : (int)from; at < bound->count; at++) {
        const U *a = bound->calls[at].arguments;
        status = bound->calls[at].function(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10]);
        if (status)
            break;
    }
    Py_END_ALLOW_THREADS
    if (status)
        return Py_BuildValue("(ii)", at, status);
    Py_RETURN_NONE;
}

static PyObject *
set_call_argument(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    BoundCalls *bound = (BoundCalls *)self;
    if (count != 3) {
        PyErr_SetString(PyExc_TypeError, "set_argument takes the call, the argument and its value");
        return NULL;
    }
    const long call = PyLong_AsLong(args[0]), argument = PyLong_AsLong(args[1]);
    const U value = PyLong_AsUnsignedLongLong(args[2]);
    if (PyErr_Occurred())
        return NULL;
    if (call < 0 || call >= bound->count || argument < 0 || argument >= MOST) {
        PyErr_Format(PyExc_IndexError, "there is no argument %ld of call %ld", argument, call);
        return NULL;
    }
    bound->calls[call].arguments[argument] = value;
    Py_RETURN_NONE;
}

static double
now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static PyObject *
poll(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t count)
{
    if (count != 4) {
        PyErr_SetString(PyExc_TypeError, "poll takes the address of a function, its argument, what it returns to be called again, "
                                         "and seconds");
        return NULL;
    }
    const Function function = (Function)(uintptr_t)PyLong_AsUnsignedLongLong(args[0]);
    const U argument = PyLong_AsUnsignedLongLong(args[1]);
    const long again = PyLong_AsLong(args[2]);
    const double seconds = PyFloat_AsDouble(args[3]);
    int status, stood_still;
    if (PyErr_Occurred())
        return NULL;
    if (function == NULL) {
        PyErr_SetString(PyExc_ValueError, "the address of a function must not be 0");
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    double before, at = now();
    const double deadline = at + seconds;
    do {
        before = at;
        status = function(argument, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
        at = now();
        stood_still = at - before > STOOD_STILL_SECONDS;
    } while (status == again && at < deadline && !stood_still);
    Py_END_ALLOW_THREADS
    return Py_BuildValue("iO", status, stood_still ? Py_True : Py_False);
}

static PyMethodDef functions[] = {
    {"poll", (PyCFunction)(void (*)(void))poll, METH_FASTCALL,
     "Call a function until it returns something else, so many seconds have passed, or the thread stood still: "
     "poll(address, argument, again, seconds)."},
    {NULL, NULL, 0, NULL},
};

static PyMethodDef several_methods[] = {
    {"set_argument", (PyCFunction)(void (*)(void))set_call_argument, METH_FASTCALL,
     "Exchange one argument of one call: set_argument(call, argument, value)."},
    {"bind_calls", bind_calls, METH_O, "Bind functions by their addresses, each with a tuple of its arguments."},
    {"run", run_calls, METH_O, "Call them from this one on; returns the one that failed and its status, or None."},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject BoundCallsType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "kernelkeep._calls.BoundCalls",
    .tp_doc = PyDoc_STR("C functions with all their arguments bound, called in order."),
    .tp_basicsize = sizeof(BoundCalls),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = PyType_GenericNew,
    .tp_methods = several_methods,
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "kernelkeep._calls",
    .m_doc = "Several C functions with all their arguments bound.",
    .m_size = -1,
    .m_methods = functions,
};

PyMODINIT_FUNC
PyInit__calls(void)
{
    PyObject *made = PyModule_Create(&module);
    if (made == NULL)
        return NULL;
#ifdef Py_GIL_DISABLED
    PyUnstable_Module_SetGIL(made, Py_MOD_GIL_NOT_USED);
#endif
    if (PyModule_AddType(made, &BoundCallsType) < 0) {
        Py_DECREF(made);
        return NULL;
    }
    return made;
}
