/* The hot path of a program cache: a loaded program is found and leased, and the lease is released.
 *
 * `HotLookup` is the base of `ProgramCache` and has its `get`; `LeaseBase` is the base of `Lease`. The twins in plain Python are in
 * `cache/program_cache.py` and `cache/lease.py`, and are used where this module was not built. How uses are counted is described in
 * `cache/loaded_programs.py`; here no other thread runs between two lines, unless they call something.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <structmember.h>

#ifdef Py_GIL_DISABLED
#error "fields of objects are read without a lock"
#endif

/* --- the classes in Python, and where their slots are */

static PyTypeObject *lease_type, *loaded_type;
static PyObject *memory, *shrink, *get_slowly, *forgotten; /* strings */
static Py_ssize_t over_at; /* in the owner of loaded programs */
static struct {
    const char *name;
    Py_ssize_t at;
} slots[] = {{"begin", 0}, {"end", 0}, {"evicted", 0}, {"tick", 0}, {"on_release", 0}, {"owner", 0}};
enum { BEGIN, END, EVICTED, TICK, ON_RELEASE, OWNER };

#define AT(object, at) (*(PyObject **)((char *)(object) + (at)))
#define SLOT(loaded, which) AT(loaded, slots[which].at)

/* Where a slot of a class is; -1 with an exception if it has none. */
static Py_ssize_t
slot_at(PyObject *type, const char *name)
{
    PyObject *descriptor = PyObject_GetAttrString(type, name);
    if (descriptor == NULL)
        return -1;
    Py_ssize_t at = -1;
    if (Py_TYPE(descriptor) == &PyMemberDescr_Type)
        at = ((PyMemberDescrObject *)descriptor)->d_member->offset;
    else
        PyErr_Format(PyExc_TypeError, "%s must be a slot", name);
    Py_DECREF(descriptor);
    return at;
}

static PyObject *
use_classes(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *lease, *loaded, *owner;
    if (!PyArg_ParseTuple(args, "O!O!O!", &PyType_Type, &lease, &PyType_Type, &loaded, &PyType_Type, &owner))
        return NULL;
    for (size_t i = 0; i < sizeof slots / sizeof *slots; i++)
        if ((slots[i].at = slot_at(loaded, slots[i].name)) < 0)
            return NULL;
    if ((over_at = slot_at(owner, "over")) < 0)
        return NULL;
    Py_XSETREF(lease_type, (PyTypeObject *)Py_NewRef(lease));
    Py_XSETREF(loaded_type, (PyTypeObject *)Py_NewRef(loaded));
    Py_RETURN_NONE;
}

/* --- counters: the twin is in `cache/native.py`; these are counted from C without a call */

typedef struct {
    PyObject_HEAD
    long long next;
    vectorcallfunc vectorcall;
} Counter;

static PyTypeObject CounterType;

static PyObject *
counter_call(PyObject *self, PyObject *const *Py_UNUSED(args), size_t given, PyObject *names)
{
    if (PyVectorcall_NARGS(given) || (names != NULL && PyTuple_GET_SIZE(names))) {
        PyErr_SetString(PyExc_TypeError, "a counter takes no arguments");
        return NULL;
    }
    return PyLong_FromLongLong(((Counter *)self)->next++);
}

static PyObject *
counter_new(PyTypeObject *type, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(kwargs))
{
    Counter *counter = (Counter *)type->tp_alloc(type, 0);
    if (counter != NULL)
        counter->vectorcall = counter_call;
    return (PyObject *)counter;
}

static PyMemberDef counter_members[] = {
    {"next", T_LONGLONG, offsetof(Counter, next), READONLY, "What the next call returns."},
    {NULL, 0, 0, 0, NULL},
};

static PyTypeObject CounterType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "kernelkeep._leases.Counter",
    .tp_doc = PyDoc_STR("Returns 0, 1, 2, … when it is called."),
    .tp_basicsize = sizeof(Counter),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_new = counter_new,
    .tp_members = counter_members,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(Counter, vectorcall),
};

/* Count in a slot; -1 with an exception. */
static int
count(PyObject *loaded, int which)
{
    PyObject *counter = SLOT(loaded, which);
    if (Py_TYPE(counter) == &CounterType) {
        ((Counter *)counter)->next++;
        return 0;
    }
    Py_INCREF(counter);
    PyObject *number = PyObject_CallNoArgs(counter);
    Py_DECREF(counter);
    Py_XDECREF(number);
    return number == NULL ? -1 : 0;
}

/* --- leases */

typedef struct {
    PyObject_HEAD
    PyObject *held, *origin; /* NULL: None */
} Lease;

static PyObject *
release(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    Lease *lease = (Lease *)self;
    PyObject *loaded = lease->held;
    if (loaded == NULL || loaded == Py_None)
        Py_RETURN_NONE;
    lease->held = NULL; /* the reference is ours from here on */
    int failed = 0;
    PyObject *on_release = SLOT(loaded, ON_RELEASE), *owner = SLOT(loaded, OWNER);
    if (on_release != Py_None) {
        Py_INCREF(on_release);
        PyObject *done = PyObject_CallOneArg(on_release, loaded);
        Py_DECREF(on_release);
        Py_XDECREF(done);
        failed = done == NULL;
    }
    if (!failed)
        failed = count(loaded, END) < 0;
    if (!failed) {
        if (AT(owner, over_at) == Py_True) {
            PyObject *done = PyObject_CallMethodNoArgs(owner, shrink);
            Py_XDECREF(done);
            failed = done == NULL;
        }
    }
    Py_DECREF(loaded);
    if (failed)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *
lease_exit(PyObject *self, PyObject *const *Py_UNUSED(args), Py_ssize_t Py_UNUSED(count))
{
    return release(self, NULL);
}

static PyObject *
lease_enter(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    return Py_NewRef(self);
}

static int
set_held(PyObject *self, PyObject *value, void *Py_UNUSED(closure))
{
    if (value != NULL && value != Py_None && Py_TYPE(value) != loaded_type) {
        PyErr_SetString(PyExc_TypeError, "a lease holds a LoadedProgram");
        return -1;
    }
    Py_XINCREF(value);
    Py_XSETREF(((Lease *)self)->held, value);
    return 0;
}

static PyObject *
get_held(PyObject *self, void *Py_UNUSED(closure))
{
    PyObject *held = ((Lease *)self)->held;
    return Py_NewRef(held == NULL ? Py_None : held);
}

/* A lease that was not released is told so, by a method in Python. */
static void
lease_finalize(PyObject *self)
{
    PyObject *held = ((Lease *)self)->held;
    if (held != NULL && held != Py_None) {
        PyObject *type, *value, *traceback;
        PyErr_Fetch(&type, &value, &traceback);
        PyObject *done = PyObject_CallMethodNoArgs(self, forgotten);
        if (done == NULL)
            PyErr_WriteUnraisable(self);
        Py_XDECREF(done);
        PyErr_Restore(type, value, traceback);
    }
}

static void
lease_dealloc(PyObject *self)
{
    if (PyObject_CallFinalizerFromDealloc(self) < 0)
        return;
    Py_XDECREF(((Lease *)self)->held);
    Py_XDECREF(((Lease *)self)->origin);
    Py_TYPE(self)->tp_free(self);
}

static PyMethodDef lease_methods[] = {
    {"release", release, METH_NOARGS, "Give the program back. Doing it twice is fine."},
    {"__enter__", lease_enter, METH_NOARGS, NULL},
    {"__exit__", (PyCFunction)(void (*)(void))lease_exit, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef lease_members[] = {
    {"origin", T_OBJECT, offsetof(Lease, origin), 0, "Where the program came from."},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef lease_getset[] = {
    {"held", get_held, set_held, "What is leased; None after the release.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyTypeObject LeaseBase = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "kernelkeep._leases.LeaseBase",
    .tp_doc = PyDoc_STR("What a lease holds, and its release."),
    .tp_basicsize = sizeof(Lease),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .tp_new = PyType_GenericNew,
    .tp_dealloc = lease_dealloc,
    .tp_finalize = lease_finalize,
    .tp_methods = lease_methods,
    .tp_members = lease_members,
    .tp_getset = lease_getset,
};

/* --- the lookup */

typedef struct {
    PyObject_HEAD
    PyObject *hot;       /* a dictionary: what finds a program → LoadedProgram */
    PyObject *next_tick; /* the clock, which counts hits as well */
} HotLookup;

static PyObject *
get(PyObject *self, PyObject *source)
{
    HotLookup *lookup = (HotLookup *)self;
    PyObject *loaded = lookup->hot == NULL ? NULL : PyDict_GetItemWithError(lookup->hot, source);
    if (loaded == NULL) {
        PyErr_Clear(); /* not hashable, so not a source: Python says so */
        return PyObject_CallMethodOneArg(self, get_slowly, source);
    }
    Py_INCREF(loaded);
    if (count(loaded, BEGIN) < 0) /* first this, then a look at `evicted` */
        goto failed;
    if (SLOT(loaded, EVICTED) != Py_False) {
        if (count(loaded, END) < 0)
            goto failed;
        Py_DECREF(loaded);
        return PyObject_CallMethodOneArg(self, get_slowly, source);
    }
    PyObject *clock = lookup->next_tick;
    PyObject *tick = Py_TYPE(clock) == &CounterType ? PyLong_FromLongLong(((Counter *)clock)->next++) : PyObject_CallNoArgs(clock);
    Lease *lease = tick == NULL ? NULL : (Lease *)lease_type->tp_alloc(lease_type, 0);
    if (lease == NULL) {
        Py_XDECREF(tick);
        count(loaded, END);
        goto failed;
    }
    Py_XSETREF(SLOT(loaded, TICK), tick);
    lease->held = loaded;
    lease->origin = Py_NewRef(memory);
    return (PyObject *)lease;
failed:
    Py_DECREF(loaded);
    return NULL;
}

static PyObject *
bind_hot(PyObject *self, PyObject *args)
{
    HotLookup *lookup = (HotLookup *)self;
    PyObject *hot, *next_tick;
    if (!PyArg_ParseTuple(args, "O!O", &PyDict_Type, &hot, &next_tick))
        return NULL;
    Py_XSETREF(lookup->hot, Py_NewRef(hot));
    Py_XSETREF(lookup->next_tick, Py_NewRef(next_tick));
    Py_RETURN_NONE;
}

static int
lookup_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(((HotLookup *)self)->hot);
    Py_VISIT(((HotLookup *)self)->next_tick);
    return 0;
}

static int
lookup_clear(PyObject *self)
{
    Py_CLEAR(((HotLookup *)self)->hot);
    Py_CLEAR(((HotLookup *)self)->next_tick);
    return 0;
}

static void
lookup_dealloc(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    lookup_clear(self);
    Py_TYPE(self)->tp_free(self);
}

static PyMethodDef lookup_methods[] = {
    {"get", get, METH_O,
     "get($self, source, /)\n--\n\nA lease on the loaded program. Compiles at most once per key, whoever asks, wherever.\n\n"
     "Raises `CompileError` with the compiler's log, to everyone who waited for it; nothing is cached then."},
    {"bind_hot", bind_hot, METH_VARARGS, "Look up in this dictionary, and take ticks from this clock."},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject HotLookupType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "kernelkeep._leases.HotLookup",
    .tp_doc = PyDoc_STR("Finds and leases loaded programs."),
    .tp_basicsize = sizeof(HotLookup),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .tp_new = PyType_GenericNew,
    .tp_traverse = lookup_traverse,
    .tp_clear = lookup_clear,
    .tp_dealloc = lookup_dealloc,
    .tp_methods = lookup_methods,
};

/* --- the module */

static PyMethodDef functions[] = {
    {"use_classes", use_classes, METH_VARARGS, "The classes of leases, of loaded programs and of their owners."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "kernelkeep._leases",
    .m_doc = "The hot path of a program cache.",
    .m_size = -1,
    .m_methods = functions,
};

PyMODINIT_FUNC
PyInit__leases(void)
{
    memory = PyUnicode_InternFromString("memory");
    shrink = PyUnicode_InternFromString("shrink");
    get_slowly = PyUnicode_InternFromString("get_slowly");
    forgotten = PyUnicode_InternFromString("forgotten");
    PyObject *made = PyModule_Create(&module);
    if (made == NULL)
        return NULL;
    if (!memory || !shrink || !get_slowly || !forgotten || PyModule_AddType(made, &LeaseBase) < 0 ||
        PyModule_AddType(made, &HotLookupType) < 0 || PyModule_AddType(made, &CounterType) < 0) {
        Py_DECREF(made);
        return NULL;
    }
    return made;
}
