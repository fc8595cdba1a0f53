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
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <stdint.h>
#include <structmember.h>

#if !defined(__linux__) || !(defined(__x86_64__) || defined(__aarch64__))
#error "only for 64-bit Linux on x86 and ARM"
#endif

#define MOST 11

typedef uint64_t U;
typedef int (*Function)(U, U, U, U, U, U, U, U, U, U, U);

typedef struct {
    PyObject_HEAD
    Function function; /* NULL: unbound */
    U arguments[MOST];
    Py_ssize_t calls; /* under way, in any thread; changed with the interpreter's lock held */
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
    bound->calls++;
    if (bound->function != NULL) {
        /* A copy, because another thread may bind another function while this one is in the driver. Functions that take fewer
         * arguments do not look at the rest. */
        const Function function = bound->function;
        U a[MOST];
        memcpy(a, bound->arguments, sizeof a);
        Py_BEGIN_ALLOW_THREADS
        status = function(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10]);
        Py_END_ALLOW_THREADS
    }
    if (status == 0) {
        bound->calls--;
        Py_RETURN_NONE;
    }
    PyObject *result = PyObject_CallMethod(self, "call_failed", "i", status);
    bound->calls--;
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
    memcpy(bound->arguments, arguments, sizeof arguments);
    bound->function = (Function)(uintptr_t)address;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"bind_function", (PyCFunction)(void (*)(void))bind_function, METH_FASTCALL,
     "Bind a function by its address, and its arguments; address 0 unbinds."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef members[] = {
    {"calls_under_way", T_PYSSIZET, offsetof(BoundCall, calls), READONLY, "How many calls are under way, in all threads."},
    {NULL, 0, 0, 0, NULL},
};

static PyTypeObject BoundCallType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "kernelkeep._native.BoundCall",
    .tp_doc = PyDoc_STR("A C function with all its arguments bound."),
    .tp_basicsize = sizeof(BoundCall),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .tp_new = PyType_GenericNew,
    .tp_call = call,
    .tp_methods = methods,
    .tp_members = members,
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
    if (PyModule_AddType(made, &BoundCallType) < 0) {
        Py_DECREF(made);
        return NULL;
    }
    return made;
}
