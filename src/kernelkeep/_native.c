/* A C function with all its arguments bound, callable from Python.
 *
 * This is all that is native in kernelkeep: a prepared launch goes from Python into the driver without looking anything up,
 * converting anything or running a line of bytecode. `devices/cuda/prepared.py` has the twin in plain Python, which is used
 * where this module was not built.
 *
 *     class Launch(BoundCall):
 *         def call_failed(self, status): ...       # called when the function returns anything but 0
 *
 *     launch = Launch(); launch.bind_function(address, (function, 4, 1, 1, 256, 1, 1, 0, stream, 0, extra)); launch()
 *
 * Every argument is an integer or a pointer and is passed as 64 bits, which is how the C calling conventions of 64-bit
 * Linux on x86 and ARM take them; elsewhere this file does not compile, and the twin is used.
 *
 * Threads: what is bound is read and written in critical sections, which the interpreter's lock makes superfluous where there is
 * one. The driver is called outside of them.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#if !defined(__linux__) || !(defined(__x86_64__) || defined(__aarch64__))
#error "only for 64-bit Linux on x86 and ARM"
#endif

#if PY_VERSION_HEX < 0x030D0000 /* Python 3.13 has them; they are empty but on a free-threaded Python */
#define Py_BEGIN_CRITICAL_SECTION(object) {
#define Py_END_CRITICAL_SECTION() }
#endif

#define MOST 11

typedef uint64_t U;
typedef int (*Function)(U, U, U, U, U, U, U, U, U, U, U);

typedef struct {
    PyObject_HEAD
    Function function; /* NULL: unbound */
    U arguments[MOST];
    Py_ssize_t calls; /* under way, in any thread; atomic */
} BoundCall;

static PyObject *
call(PyObject *self, PyObject *args, PyObject *kwargs)
{
    BoundCall *bound = (BoundCall *)self;
    int status = -1;
    if (PyTuple_GET_SIZE(args) || (kwargs != NULL && PyDict_GET_SIZE(kwargs))) {
        PyErr_SetString(PyExc_TypeError, "everything is bound already: a prepared launch is called without arguments");
        return NULL;
    }
    /* A copy, because another thread may bind another function while this one is in the driver. Functions that take fewer
     * arguments do not look at the rest. Who unbinds and then sees no call under way knows that none will come. */
    Function function;
    U a[MOST];
    Py_BEGIN_CRITICAL_SECTION(self);
    __atomic_fetch_add(&bound->calls, 1, __ATOMIC_ACQ_REL);
    function = bound->function;
    memcpy(a, bound->arguments, sizeof a);
    Py_END_CRITICAL_SECTION();
    if (function != NULL) {
        Py_BEGIN_ALLOW_THREADS
        status = function(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10]);
        Py_END_ALLOW_THREADS
    }
    if (status == 0) {
        __atomic_fetch_sub(&bound->calls, 1, __ATOMIC_ACQ_REL);
        Py_RETURN_NONE;
    }
    PyObject *result = PyObject_CallMethod(self, "call_failed", "i", status);
    __atomic_fetch_sub(&bound->calls, 1, __ATOMIC_ACQ_REL);
    return result;
}

static PyObject *
bind_function(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    BoundCall *bound = (BoundCall *)self;
    U arguments[MOST] = {0};
    if (count != 2 || !PyTuple_Check(args[1]) || PyTuple_GET_SIZE(args[1]) > MOST) {
        PyErr_Format(PyExc_TypeError, "bind_function takes an address and a tuple of at most %d integers", MOST);
        return NULL;
    }
    const uint64_t address = PyLong_AsUnsignedLongLong(args[0]);
    if (address == (uint64_t)-1 && PyErr_Occurred())
        return NULL;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args[1]); i++) {
        arguments[i] = PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(args[1], i));
        if (arguments[i] == (U)-1 && PyErr_Occurred())
            return NULL;
    }
    Py_BEGIN_CRITICAL_SECTION(self);
    memcpy(bound->arguments, arguments, sizeof arguments);
    bound->function = (Function)(uintptr_t)address;
    Py_END_CRITICAL_SECTION();
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"bind_function", (PyCFunction)(void (*)(void))bind_function, METH_FASTCALL,
     "Bind a function by its address, and its arguments; address 0 unbinds."},
    {NULL, NULL, 0, NULL},
};

static PyObject *
calls_under_way(PyObject *self, void *Py_UNUSED(closure))
{
    return PyLong_FromSsize_t(__atomic_load_n(&((BoundCall *)self)->calls, __ATOMIC_ACQUIRE));
}

static PyGetSetDef getset[] = {
    {"calls_under_way", calls_under_way, NULL, "How many calls are under way, in all threads.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyTypeObject BoundCallType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "kernelkeep._native.BoundCall",
    .tp_doc = PyDoc_STR("A C function with all its arguments bound."),
    .tp_basicsize = sizeof(BoundCall),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .tp_new = PyType_GenericNew,
    .tp_call = call,
    .tp_methods = methods,
    .tp_getset = getset,
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "kernelkeep._native",
    .m_doc = "A C function with all its arguments bound, callable from Python.",
    .m_size = -1,
};

PyMODINIT_FUNC
PyInit__native(void)
{
    PyObject *made = PyModule_Create(&module);
    if (made == NULL)
        return NULL;
#ifdef Py_GIL_DISABLED
    PyUnstable_Module_SetGIL(made, Py_MOD_GIL_NOT_USED);
#endif
    if (PyModule_AddType(made, &BoundCallType) < 0) {
        Py_DECREF(made);
        return NULL;
    }
    return made;
}
