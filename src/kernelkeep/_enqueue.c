/* OpenCL launches that go from Python into the driver without a line of bytecode, and without an event for each.
 *
 *     target = Target(address of clEnqueueNDRangeKernel, queue)
 *     target.enqueue(launches)                               # None, or where it stopped and what the driver said
 *
 *     class Launch(BoundLaunches):
 *         def call_failed(self, place, status): ...           # called where the driver refuses, or nothing is bound
 *
 *     launch = Launch(); launch.bind_launches(target, launches, kept); launch()
 *
 * `launches` are bytes: for each launch the kernel, the number of dimensions, three numbers of work-items and three sizes of a
 * group, all of 64 bits. `devices/opencl/native.py` packs them. A call holds `launches` and `kept` until it returns, so that
 * another thread may bind or unbind meanwhile and close what they name.
 *
 * The driver gets an event for nothing: who waits, waits for the queue. One launch keeps the interpreter's lock, as with
 * pyopencl, because taking it back costs as much as the launch; several release it.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <stdint.h>

#if !defined(__linux__) || UINTPTR_MAX != UINT64_MAX
#error "only for 64-bit Linux"
#endif

#if PY_VERSION_HEX < 0x030D0000 /* Python 3.13 has them; they are empty but on a free-threaded Python */
#define Py_BEGIN_CRITICAL_SECTION(object) {
#define Py_END_CRITICAL_SECTION() }
#endif

typedef int32_t (*Enqueue)(void *queue, void *kernel, uint32_t dimensions, const size_t *offset, const size_t *items,
                           const size_t *group, uint32_t events, const void *wait_for, void *event);

typedef struct {
    uint64_t kernel, dimensions;
    size_t items[3], group[3];
} Launch;

/* --- where launches go */

typedef struct {
    PyObject_HEAD
    Enqueue enqueue;
    void *queue;
} Target;

static int32_t
enqueue_all(const Target *target, const Launch *launches, Py_ssize_t count, Py_ssize_t *place)
{
    void *queue = __atomic_load_n(&target->queue, __ATOMIC_RELAXED);
    for (Py_ssize_t i = 0; i < count; i++) {
        const Launch *one = launches + i;
        const int32_t status = target->enqueue(queue, (void *)(uintptr_t)one->kernel, (uint32_t)one->dimensions, NULL,
                                               one->items, one->group, 0, NULL, NULL);
        if (status != 0) {
            *place = i;
            return status;
        }
    }
    return 0;
}

/* The driver's status, and in `place` which launch it is about. */
static int32_t
enqueue(const Target *target, PyObject *launches, Py_ssize_t *place)
{
    const Launch *first = (const Launch *)PyBytes_AS_STRING(launches);
    const Py_ssize_t count = PyBytes_GET_SIZE(launches) / (Py_ssize_t)sizeof(Launch);
    int32_t status;
    if (count == 1)
        return enqueue_all(target, first, 1, place);
    Py_BEGIN_ALLOW_THREADS
    status = enqueue_all(target, first, count, place);
    Py_END_ALLOW_THREADS
    return status;
}

static int
check_launches(PyObject *launches)
{
    if (PyBytes_CheckExact(launches) && PyBytes_GET_SIZE(launches) % (Py_ssize_t)sizeof(Launch) == 0)
        return 0;
    PyErr_Format(PyExc_TypeError, "launches must be bytes, %d for each", (int)sizeof(Launch));
    return -1;
}

static PyObject *
target_enqueue(PyObject *self, PyObject *launches)
{
    Py_ssize_t place = 0;
    if (check_launches(launches) < 0)
        return NULL;
    const int32_t status = enqueue((Target *)self, launches, &place);
    if (status == 0)
        Py_RETURN_NONE;
    return Py_BuildValue("ni", place, (int)status);
}

static PyObject *
new_target(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    unsigned long long function, queue;
    if (!PyArg_ParseTuple(args, "KK", &function, &queue))
        return NULL;
    if (function == 0 || queue == 0) {
        PyErr_SetString(PyExc_ValueError, "a function and a queue must not be 0");
        return NULL;
    }
    Target *target = (Target *)type->tp_alloc(type, 0);
    if (target != NULL) {
        target->enqueue = (Enqueue)(uintptr_t)function;
        target->queue = (void *)(uintptr_t)queue;
    }
    return (PyObject *)target;
}

static PyObject *
get_queue(PyObject *self, void *Py_UNUSED(closure))
{
    return PyLong_FromVoidPtr(__atomic_load_n(&((Target *)self)->queue, __ATOMIC_RELAXED));
}

static int
set_queue(PyObject *self, PyObject *value, void *Py_UNUSED(closure))
{
    const unsigned long long queue = value == NULL ? 0 : PyLong_AsUnsignedLongLong(value);
    if (PyErr_Occurred())
        return -1;
    if (queue == 0) {
        PyErr_SetString(PyExc_ValueError, "a queue must not be 0");
        return -1;
    }
    __atomic_store_n(&((Target *)self)->queue, (void *)(uintptr_t)queue, __ATOMIC_RELAXED);
    return 0;
}

static PyMethodDef target_methods[] = {
    {"enqueue", target_enqueue, METH_O, "Launch in order; None, or which launch was refused and the driver's status."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef target_getset[] = {
    {"queue", get_queue, set_queue, "The queue that launches go to from now on.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyTypeObject TargetType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "kernelkeep._enqueue.Target",
    .tp_doc = PyDoc_STR("A queue, and the driver's function that launches on it."),
    .tp_basicsize = sizeof(Target),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = new_target,
    .tp_methods = target_methods,
    .tp_getset = target_getset,
};

/* --- launches that are bound */

typedef struct {
    PyObject_HEAD
    PyObject *bound; /* the target, the launches and what is kept for them; NULL: unbound */
    vectorcallfunc vectorcall;
} BoundLaunches;

static PyObject *
call(PyObject *self, PyObject *const *Py_UNUSED(args), size_t flags, PyObject *names)
{
    PyObject *bound;
    Py_ssize_t place = 0;
    int32_t status = 0;
    if (PyVectorcall_NARGS(flags) || (names != NULL && PyTuple_GET_SIZE(names))) {
        PyErr_SetString(PyExc_TypeError, "everything is bound already: a prepared launch is called without arguments");
        return NULL;
    }
    Py_BEGIN_CRITICAL_SECTION(self);
    bound = Py_XNewRef(((BoundLaunches *)self)->bound);
    Py_END_CRITICAL_SECTION();
    if (bound != NULL) {
        status = enqueue((Target *)PyTuple_GET_ITEM(bound, 0), PyTuple_GET_ITEM(bound, 1), &place);
        Py_DECREF(bound);
        if (status == 0)
            Py_RETURN_NONE;
    }
    return PyObject_CallMethod(self, "call_failed", "ni", place, (int)status);
}

static PyObject *
bind_launches(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    PyObject *bound = NULL, *before;
    if (count != 3 && count != 0) {
        PyErr_SetString(PyExc_TypeError, "bind_launches takes a target, launches and what to keep for them, or nothing");
        return NULL;
    }
    if (count == 3) {
        if (!Py_IS_TYPE(args[0], &TargetType)) {
            PyErr_SetString(PyExc_TypeError, "target must be a Target");
            return NULL;
        }
        if (check_launches(args[1]) < 0)
            return NULL;
        bound = PyTuple_Pack(3, args[0], args[1], args[2]);
        if (bound == NULL)
            return NULL;
    }
    Py_BEGIN_CRITICAL_SECTION(self);
    before = ((BoundLaunches *)self)->bound;
    ((BoundLaunches *)self)->bound = bound;
    Py_END_CRITICAL_SECTION();
    Py_XDECREF(before);
    Py_RETURN_NONE;
}

static PyObject *
new_bound_launches(PyTypeObject *type, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(kwargs))
{
    BoundLaunches *made = (BoundLaunches *)type->tp_alloc(type, 0);
    if (made != NULL)
        made->vectorcall = call;
    if (type->tp_call == PyVectorcall_Call) /* not replaced; classes in Python inherit the flag from 3.12 on */
        type->tp_flags |= Py_TPFLAGS_HAVE_VECTORCALL;
    return (PyObject *)made;
}

static int
traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(((BoundLaunches *)self)->bound);
    return 0;
}

static int
clear(PyObject *self)
{
    Py_CLEAR(((BoundLaunches *)self)->bound);
    return 0;
}

static void
dealloc(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    clear(self);
    Py_TYPE(self)->tp_free(self);
}

static PyMethodDef bound_methods[] = {
    {"bind_launches", (PyCFunction)(void (*)(void))bind_launches, METH_FASTCALL,
     "Bind a target, launches, and what is to live as long as they are under way; without arguments: unbind."},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject BoundLaunchesType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "kernelkeep._enqueue.BoundLaunches",
    .tp_doc = PyDoc_STR("Launches with everything bound, made by one call."),
    .tp_basicsize = sizeof(BoundLaunches),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_HAVE_GC,
    .tp_new = new_bound_launches,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(BoundLaunches, vectorcall),
    .tp_traverse = traverse,
    .tp_clear = clear,
    .tp_dealloc = dealloc,
    .tp_methods = bound_methods,
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "kernelkeep._enqueue",
    .m_doc = "OpenCL launches that go from Python into the driver without a line of bytecode.",
    .m_size = -1,
};

PyMODINIT_FUNC
PyInit__enqueue(void)
{
    PyObject *made = PyModule_Create(&module);
    if (made == NULL)
        return NULL;
#ifdef Py_GIL_DISABLED
    PyUnstable_Module_SetGIL(made, Py_MOD_GIL_NOT_USED);
#endif
    if (PyModule_AddType(made, &TargetType) < 0 || PyModule_AddType(made, &BoundLaunchesType) < 0) {
        Py_DECREF(made);
        return NULL;
    }
    return made;
}
