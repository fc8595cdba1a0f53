/* Launches that go from Python into a driver without looking anything up or running a line of bytecode.
 *
 * `BoundCall` is a C function with all its arguments bound: a prepared launch. `CheckedLaunch` checks and packs
 * the arguments of a kernel and launches it. `devices/cuda/prepared.py` and `devices/cuda/program.py` have the twins in plain
 * Python, which are used where this module was not built.
 *
 *     class Launch(BoundCall):
 *         def call_failed(self, status): ...       # called when the function returns anything but 0
 *         def called_often(self): ...              # called once after so many calls as `bind_function` was told
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
#include <structmember.h>
#include <math.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if !defined(__linux__) || !(defined(__x86_64__) || defined(__aarch64__))
#error "only for 64-bit Linux on x86 and ARM"
#endif

#if PY_VERSION_HEX < 0x030D0000 /* Python 3.13 has them; they are empty but on a free-threaded Python */
#define Py_BEGIN_CRITICAL_SECTION(object) {
#define Py_END_CRITICAL_SECTION() }
#endif

#ifdef Py_GIL_DISABLED
#define COUNT(place, number) __atomic_fetch_add(&(place), (number), __ATOMIC_ACQ_REL)
#else
#define COUNT(place, number) ((place) += (number)) /* under the interpreter's lock, and cheaper */
#endif

#define MOST 11

typedef uint64_t U;
typedef int (*Function)(U, U, U, U, U, U, U, U, U, U, U);

typedef struct {
    PyObject_HEAD
    Function function; /* NULL: unbound */
    U arguments[MOST];
    Py_ssize_t calls; /* under way, in any thread */
    unsigned long until_often; /* calls until `called_often` is called; 0: it is not */
    int alone;                 /* one thread at a time may be in the function */
    pthread_mutex_t lock;
    vectorcallfunc vectorcall;
} BoundCall;

static PyObject *
call(PyObject *self, PyObject *const *Py_UNUSED(args), size_t count, PyObject *names)
{
    BoundCall *bound = (BoundCall *)self;
    int status = -1;
    if (PyVectorcall_NARGS(count) || (names != NULL && PyTuple_GET_SIZE(names))) {
        PyErr_SetString(PyExc_TypeError, "everything is bound already: a prepared launch is called without arguments");
        return NULL;
    }
    /* A copy, because another thread may bind another function while this one is in the driver. Functions that take fewer
     * arguments do not look at the rest. Who unbinds and then sees no call under way knows that none will come. */
    Function function;
    U a[MOST];
    int alone, often;
    Py_BEGIN_CRITICAL_SECTION(self);
    COUNT(bound->calls, 1);
    function = bound->function;
    memcpy(a, bound->arguments, sizeof a);
    alone = bound->alone;
    often = bound->until_often > 0 && --bound->until_often == 0;
    Py_END_CRITICAL_SECTION();
    if (function != NULL) {
        Py_BEGIN_ALLOW_THREADS
        if (alone)
            pthread_mutex_lock(&bound->lock);
        status = function(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10]);
        if (alone)
            pthread_mutex_unlock(&bound->lock);
        Py_END_ALLOW_THREADS
    }
    if (status == 0 && !often) {
        COUNT(bound->calls, -1);
        Py_RETURN_NONE;
    }
    PyObject *result = status == 0 ? PyObject_CallMethod(self, "called_often", NULL)
                                   : PyObject_CallMethod(self, "call_failed", "i", status);
    COUNT(bound->calls, -1);
    return result;
}

static PyObject *
new_bound_call(PyTypeObject *type, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(kwargs))
{
    BoundCall *bound = (BoundCall *)type->tp_alloc(type, 0);
    if (bound != NULL) {
        bound->vectorcall = call;
        pthread_mutex_init(&bound->lock, NULL);
    }
    if (type->tp_call == PyVectorcall_Call) /* not replaced; classes in Python inherit the flag from 3.12 on */
        type->tp_flags |= Py_TPFLAGS_HAVE_VECTORCALL;
    return (PyObject *)bound;
}

static PyObject *
bind_function(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    BoundCall *bound = (BoundCall *)self;
    U arguments[MOST] = {0};
    if (count < 2 || count > 4 || !PyTuple_Check(args[1]) || PyTuple_GET_SIZE(args[1]) > MOST) {
        PyErr_Format(PyExc_TypeError,
                     "bind_function takes an address, a tuple of at most %d integers, a number of calls and a flag", MOST);
        return NULL;
    }
    const unsigned long often = count > 2 ? PyLong_AsUnsignedLong(args[2]) : 0;
    if (often == (unsigned long)-1 && PyErr_Occurred())
        return NULL;
    const int alone = count > 3 ? PyObject_IsTrue(args[3]) : 0;
    if (alone < 0)
        return NULL;
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
    bound->until_often = often;
    bound->alone = alone;
    Py_END_CRITICAL_SECTION();
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"bind_function", (PyCFunction)(void (*)(void))bind_function, METH_FASTCALL,
     "Bind a function by its address, and its arguments; address 0 unbinds. After so many calls, if a number is given,\n"
     "`called_often` is called, once. With the flag, threads call the function one after the other."},
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
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_new = new_bound_call,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(BoundCall, vectorcall),
    .tp_methods = methods,
    .tp_getset = getset,
};

/* --- a kernel's launch with new arguments
 *
 *     launch = CheckedLaunch(cuLaunchKernel, function, stream, "QQfi", (0, 8, 16, 20), 24, checks, Array, device, slow)
 *     launch((x, y, a, n), (4, 1, 1, 256, 1, 1))          # the arguments, the grid and the group
 *
 * The codes are those of Python's `struct`. `checks` has for each buffer its dtype, or None for any, and for each scalar the NumPy
 * type it has. An argument is taken here if it is what it usually is: an open array of this device, which no other library uses,
 * with that dtype; a NumPy scalar of that type; a Python number that fits. With anything else, and where the driver refuses,
 * `slow(arguments, shape)` is called instead, which says what is wrong. Each call packs into memory of its own: no lock. */

#define MOST_PARAMETERS 64
#define MOST_BYTES 4096

typedef struct {
    PyObject_HEAD
    Function function;
    U kernel, stream;
    Py_ssize_t count, nbytes;
    PyTypeObject *array;
    Py_ssize_t device_at, dtype_at, ready_at; /* where these slots are in an array */
    PyObject *device, *checks, *slow;
    vectorcallfunc vectorcall;
    char codes[MOST_PARAMETERS];
    char is_buffer[MOST_PARAMETERS];
    uint16_t offsets[MOST_PARAMETERS];
} CheckedLaunch;

#define SLOT(object, at) (*(PyObject **)((char *)(object) + (at)))

/* The handle of an array that may be used without further checks, or NULL. */
static PyObject *
handle_of(const CheckedLaunch *checked, PyObject *value, PyObject *dtype)
{
    if (Py_TYPE(value) != checked->array || SLOT(value, checked->device_at) != checked->device ||
        (dtype != Py_None && SLOT(value, checked->dtype_at) != dtype))
        return NULL;
    PyObject *ready = SLOT(value, checked->ready_at);
    return ready != NULL && PyLong_Check(ready) ? ready : NULL;
}

/* Write a scalar; 0 if it is not what it usually is. No exception is left. */
static int
pack_scalar(char code, PyObject *value, PyObject *type, unsigned char *to)
{
    const int exact = (PyObject *)Py_TYPE(value) == type; /* then it fits */
    if (code == 'f' || code == 'd') {
        if (!exact && !PyFloat_CheckExact(value))
            return 0;
        const double number = PyFloat_AsDouble(value);
        const float single = (float)number;
        if (!exact && code == 'f' && isinf(single) && !isinf(number))
            return 0; /* too large */
        memcpy(to, code == 'f' ? (const void *)&single : (const void *)&number, code == 'f' ? 4 : 8);
        return 1;
    }
    if (!exact && !PyLong_CheckExact(value))
        return 0;
    const size_t size = strchr("Qq", code) ? 8 : strchr("Ii", code) ? 4 : strchr("Hh", code) ? 2 : 1;
    if (exact) {
        const unsigned long long number = PyLong_AsUnsignedLongLongMask(value); /* by __index__ */
        memcpy(to, &number, size);
        return 1;
    }
    int overflow;
    const long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
    const int is_signed = strchr("qihb", code) != NULL;
    const long long most = size == 8 ? INT64_MAX : (1LL << (8 * size - is_signed)) - 1;
    if (overflow || number > most || number < (is_signed ? -most - 1 : 0))
        return 0;
    memcpy(to, &number, size);
    return 1;
}

static PyObject *
launch(PyObject *self, PyObject *const *args, size_t flags, PyObject *names)
{
    CheckedLaunch *checked = (CheckedLaunch *)self;
    _Alignas(16) unsigned char buffer[MOST_BYTES];
    PyObject *held[MOST_PARAMETERS]; /* another thread may close an array while this one is in the driver */
    U shape[6];
    int status = -1;
    if (PyVectorcall_NARGS(flags) != 2 || names != NULL || !PyTuple_Check(args[1]) || PyTuple_GET_SIZE(args[1]) != 6) {
        PyErr_SetString(PyExc_TypeError, "a launch takes its arguments and its shape");
        return NULL;
    }
    if (!PyTuple_CheckExact(args[0]) || PyTuple_GET_SIZE(args[0]) != checked->count)
        return PyObject_Vectorcall(checked->slow, args, 2, NULL);
    for (int i = 0; i < 6; i++)
        shape[i] = PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(args[1], i));
    if (PyErr_Occurred())
        return NULL;
    Py_ssize_t i, holds = 0;
    for (i = 0; i < checked->count; i++) {
        PyObject *value = PyTuple_GET_ITEM(args[0], i), *check = PyTuple_GET_ITEM(checked->checks, i);
        unsigned char *to = buffer + checked->offsets[i];
        if (checked->is_buffer[i]) {
            PyObject *handle = handle_of(checked, value, check);
            if (handle == NULL)
                break;
            const unsigned long long address = PyLong_AsUnsignedLongLongMask(handle);
            memcpy(to, &address, 8);
            held[holds++] = Py_NewRef(handle);
        } else if (!pack_scalar(checked->codes[i], value, check, to))
            break;
    }
    if (i == checked->count && !PyErr_Occurred()) {
        size_t nbytes = (size_t)checked->nbytes;
        void *extra[] = {(void *)1, buffer, (void *)2, &nbytes, NULL}; /* CU_LAUNCH_PARAM_BUFFER_POINTER, …_SIZE, …_END */
        Py_BEGIN_ALLOW_THREADS
        status = checked->function(checked->kernel, shape[0], shape[1], shape[2], shape[3], shape[4], shape[5], 0,
                                   checked->stream, 0, (U)(uintptr_t)extra);
        Py_END_ALLOW_THREADS
    }
    while (holds)
        Py_DECREF(held[--holds]);
    if (status == 0)
        Py_RETURN_NONE;
    PyErr_Clear();
    return PyObject_Vectorcall(checked->slow, args, 2, NULL);
}

/* Where a slot of a class is; -1 with an exception if it has none. */
static Py_ssize_t
slot_at(PyTypeObject *type, const char *name)
{
    PyObject *descriptor = PyObject_GetAttrString((PyObject *)type, name);
    if (descriptor == NULL)
        return -1;
    Py_ssize_t at = -1;
    if (Py_TYPE(descriptor) == &PyMemberDescr_Type)
        at = ((PyMemberDescrObject *)descriptor)->d_member->offset;
    else
        PyErr_Format(PyExc_TypeError, "%s is no slot of %s", name, type->tp_name);
    Py_DECREF(descriptor);
    return at;
}

static PyObject *
new_checked_launch(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    unsigned long long function, kernel, stream;
    const char *codes;
    Py_ssize_t count, nbytes;
    PyObject *offsets, *checks, *array, *device, *slow;
    if (!PyArg_ParseTuple(args, "KKKs#O!nO!O!OO", &function, &kernel, &stream, &codes, &count, &PyTuple_Type, &offsets, &nbytes,
                          &PyTuple_Type, &checks, &PyType_Type, &array, &device, &slow))
        return NULL;
    if (count > MOST_PARAMETERS || nbytes > MOST_BYTES || PyTuple_GET_SIZE(offsets) != count ||
        PyTuple_GET_SIZE(checks) != count || strspn(codes, "QqIiHhBbfd") != (size_t)count) {
        PyErr_SetString(PyExc_ValueError, "too many parameters, or one that cannot be packed");
        return NULL;
    }
    CheckedLaunch *checked = (CheckedLaunch *)type->tp_alloc(type, 0);
    if (checked == NULL)
        return NULL;
    checked->function = (Function)(uintptr_t)function;
    checked->kernel = kernel;
    checked->stream = stream;
    checked->count = count;
    checked->nbytes = nbytes;
    checked->array = (PyTypeObject *)Py_NewRef(array);
    checked->device = Py_NewRef(device);
    checked->checks = Py_NewRef(checks);
    checked->slow = Py_NewRef(slow);
    checked->vectorcall = launch;
    checked->device_at = slot_at(checked->array, "device");
    checked->dtype_at = slot_at(checked->array, "dtype");
    checked->ready_at = slot_at(checked->array, "ready");
    for (Py_ssize_t i = 0; i < count; i++) {
        const long offset = PyLong_AsLong(PyTuple_GET_ITEM(offsets, i));
        if (!PyErr_Occurred() && (offset < 0 || offset + 8 > MOST_BYTES))
            PyErr_SetString(PyExc_ValueError, "an offset is out of range");
        checked->offsets[i] = (uint16_t)offset;
        checked->codes[i] = codes[i];
        checked->is_buffer[i] = codes[i] == 'Q' && !PyType_Check(PyTuple_GET_ITEM(checks, i));
    }
    if (PyErr_Occurred()) {
        Py_DECREF(checked);
        return NULL;
    }
    return (PyObject *)checked;
}

static int
traverse_checked_launch(PyObject *self, visitproc visit, void *arg)
{
    CheckedLaunch *checked = (CheckedLaunch *)self;
    Py_VISIT(checked->array);
    Py_VISIT(checked->device);
    Py_VISIT(checked->checks);
    Py_VISIT(checked->slow);
    return 0;
}

static int
clear_checked_launch(PyObject *self)
{
    CheckedLaunch *checked = (CheckedLaunch *)self;
    Py_CLEAR(checked->array);
    Py_CLEAR(checked->device);
    Py_CLEAR(checked->checks);
    Py_CLEAR(checked->slow);
    return 0;
}

static void
dealloc_checked_launch(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    clear_checked_launch(self);
    Py_TYPE(self)->tp_free(self);
}

static PyTypeObject CheckedLaunchType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "kernelkeep._native.CheckedLaunch",
    .tp_doc = PyDoc_STR("Checks and packs the arguments of a kernel and launches it."),
    .tp_basicsize = sizeof(CheckedLaunch),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_HAVE_GC,
    .tp_new = new_checked_launch,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(CheckedLaunch, vectorcall),
    .tp_traverse = traverse_checked_launch,
    .tp_clear = clear_checked_launch,
    .tp_dealloc = dealloc_checked_launch,
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "kernelkeep._native",
    .m_doc = "Launches that go from Python into a driver without a line of bytecode.",
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
    if (PyModule_AddType(made, &BoundCallType) < 0 || PyModule_AddType(made, &CheckedLaunchType) < 0) {
        Py_DECREF(made);
        return NULL;
    }
    return made;
}
