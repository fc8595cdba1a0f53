/* One lane of a resident kernel's ring, the futures of the tasks in it, and a `submit` that finds the lane.
 *
 * `resident/protocol.py` states the protocol, `resident/python_lane.py` has the twins in plain Python, which are used where this
 * module was not built. Here are what Python has not: memory barriers, and a push and a result in about a hundred nanoseconds.
 *
 * Threads: everything runs with the interpreter's lock, but for waits. On a free-threaded Python a critical section of the lane
 * stands for it, which a wait suspends in the same way. A function that calls one named `do_…` begins one.
 * Where Python code may run in the middle (converting an argument, making or dropping an object) another thread may use the lane;
 * so records are written and published in one go, after all that.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <structmember.h>
#include <time.h>

#if !defined(__linux__) || !(defined(__x86_64__) || defined(__aarch64__)) || defined(__AARCH64EB__)
#error "only for 64-bit Linux on x86 and ARM, little-endian"
#endif

#if PY_VERSION_HEX < 0x030D0000 /* Python 3.13 has them; they are empty but on a free-threaded Python */
#define Py_BEGIN_CRITICAL_SECTION(object) {
#define Py_END_CRITICAL_SECTION() }
#endif

#define HEADER_BYTES 8
#define MAX_SLOT 1024
#define COPY_AT 2      /* the word of the host's line at which the copy of the newest record begins */
#define COPY_WORDS 14  /* it has that many, each a tag and 4 bytes */
#define HELD_NS 5000          /* `result` spins that long before it lets go of the interpreter's lock */
#define STRAGGLER_NS 1000000  /* `value` waits that long for the words of a result that is on its way */
#define YIELDS 20             /* for so many times as long as it spins, a thread that waits gives way to others between looks */
#define LEAST_SLEEP_NS 20000
#define MOST_SLEEP_NS 1000000
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

/* ---- Memory. The device is an observer outside the processors: on ARM that is the outer shareable domain. On x86 a plain
 * load or store of cacheable memory has the order already, and only the compiler must be kept from changing it. */

static inline uint64_t
load_acquire(const uint64_t *word)
{
    const uint64_t value = __atomic_load_n(word, __ATOMIC_ACQUIRE);
#ifdef __aarch64__
    __asm__ volatile("dmb oshld" ::: "memory");
#endif
    return value;
}

static inline void
store_release(uint64_t *word, uint64_t value)
{
#ifdef __aarch64__
    __asm__ volatile("dmb osh" ::: "memory");
#endif
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

static inline void
spin_pause(void)
{
#ifdef __x86_64__
    __builtin_ia32_pause();
#else
    __asm__ volatile("yield" ::: "memory");
#endif
}

static int64_t
now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

/* ---- Types */

typedef struct Future Future;

typedef struct {
    PyObject_HEAD
    Py_buffer view;
    int has_view;
    uint64_t *head, *done, *results;
    char *slots;
    uint64_t capacity, slot;
    uint64_t submitted;  /* what head is */
    uint64_t known_done; /* what done was when last loaded; saves loading a line that the device writes */
    PyTypeObject *future_type;
    PyObject *context, *failure;
    long long held_ns;
    /* Futures with results, in order: numbers first ... next - 1, each at its number modulo the capacity. The first one has
     * results in the ring, so all of them lie within the last `capacity` tasks and fit. */
    Future **pending;
    uint64_t first, next;
    Future *spare; /* for the next push: made while the device is busy with the last one */
} Lane;

struct Future {
    PyObject_HEAD
    Lane *lane;
    uint64_t sequence, count;
    uint64_t left;    /* tasks that are not done, or have results that are still in the ring */
    uint64_t bits;    /* the result of a single task */
    PyObject *values; /* the results of a batch: a bytearray */
    PyObject *failure;
    char code, batch;
};

static PyTypeObject LaneType, FutureType;

static inline size_t
code_bytes(char code)
{
    switch (code) {
    case '?': case 'b': case 'B': return 1;
    case 'h': case 'H': case 'e': return 2;
    case 'i': case 'I': case 'f': return 4;
    case 'q': case 'Q': case 'd': return 8;
    default: return 0;
    }
}

static int
refuse_code(char code)
{
    PyErr_Format(PyExc_ValueError, "a type's code must be one of ? b B h H i I q Q e f d, got '%c'", code);
    return -1;
}

/* ---- Results: from the ring into the futures */

/* Whether the words of a task are those of its result, and its bits. */
static inline __attribute__((always_inline)) int
read_words(const Lane *lane, uint64_t sequence, size_t size, uint64_t *bits)
{
    const uint64_t *words = lane->results + 2 * (sequence & (lane->capacity - 1));
    const uint32_t tag = (uint32_t)(sequence + 1);
    const uint64_t low = __atomic_load_n(words, __ATOMIC_RELAXED);
    if ((uint32_t)(low >> 32) != tag)
        return 0;
    *bits = (uint32_t)low;
    if (size == 8) {
        const uint64_t high = __atomic_load_n(words + 1, __ATOMIC_RELAXED);
        if ((uint32_t)(high >> 32) != tag)
            return 0;
        *bits |= high << 32;
    }
    return 1;
}

/* Copy results until one has not arrived; how many. */
static inline __attribute__((always_inline)) uint64_t
take_many(const Lane *lane, uint64_t from, uint64_t upto, size_t size, char *to)
{
    uint64_t sequence = from, bits;
    for (; sequence < upto && read_words(lane, sequence, size, &bits); sequence++, to += size)
        memcpy(to, &bits, size); /* little-endian */
    return sequence - from;
}

/* Take what has arrived of a future's results; whether that is all. Runs no Python code. */
static int
take(Future *future)
{
    if (!future->left)
        return 1;
    Lane *lane = future->lane;
    const uint64_t end = future->sequence + future->count;
    const uint64_t done = lane->known_done >= end ? lane->known_done : (lane->known_done = load_acquire(lane->done));
    if (!future->code) {
        if (done >= end)
            future->left = 0;
        return !future->left;
    }
    const size_t size = code_bytes(future->code);
    if (!future->batch) {
        if (done >= end && read_words(lane, future->sequence, size, &future->bits))
            future->left = 0;
        return !future->left;
    }
    char *to = PyByteArray_AS_STRING(future->values) + (future->count - future->left) * size;
    const uint64_t from = end - future->left, upto = done < end ? done : end;
    switch (size) { /* the sizes are constants then, and copies plain moves */
    case 1: future->left -= take_many(lane, from, upto, 1, to); break;
    case 2: future->left -= take_many(lane, from, upto, 2, to); break;
    case 4: future->left -= take_many(lane, from, upto, 4, to); break;
    default: future->left -= take_many(lane, from, upto, 8, to);
    }
    return !future->left;
}

/* Let go of the futures at the front that have all their results. Dropping one may run Python code. */
static inline void
drop_taken(Lane *lane)
{
    while (lane->first != lane->next) {
        Future *future = lane->pending[lane->first & (lane->capacity - 1)];
        if (future->left)
            return;
        lane->first++;
        Py_DECREF(future);
    }
}

static int
take_and_drop(Future *future)
{
    const int arrived = take(future);
    if (arrived && future->code)
        drop_taken(future->lane);
    return arrived;
}

/* How many slots are free, as far as known. Runs no Python code. */
static inline uint64_t
known_room(const Lane *lane)
{
    uint64_t before = lane->known_done;
    if (lane->first != lane->next) {
        const Future *oldest = lane->pending[lane->first & (lane->capacity - 1)];
        const uint64_t kept = oldest->sequence + oldest->count - oldest->left;
        if (kept < before)
            before = kept;
    }
    return before + lane->capacity - lane->submitted;
}

/* Look for free slots until there are `wanted`, or no more. May run Python code. */
static uint64_t
find_room(Lane *lane, uint64_t wanted)
{
    uint64_t room = known_room(lane);
    if (room >= wanted)
        return room;
    lane->known_done = load_acquire(lane->done);
    while ((room = known_room(lane)) < wanted && lane->first != lane->next) {
        Future *oldest = lane->pending[lane->first & (lane->capacity - 1)];
        const uint64_t left = oldest->left;
        take(oldest);
        if (oldest->left == left) /* not done, or its words are on their way */
            break;
        drop_taken(lane);
    }
    return room;
}

static PyObject *
number_of(char code, uint64_t bits)
{
    float single;
    double number;
    switch (code) {
    case '?': return PyBool_FromLong(bits & 0xff);
    case 'b': return PyLong_FromLong((int8_t)bits);
    case 'B': return PyLong_FromLong((uint8_t)bits);
    case 'h': return PyLong_FromLong((int16_t)bits);
    case 'H': return PyLong_FromLong((uint16_t)bits);
    case 'i': return PyLong_FromLong((int32_t)bits);
    case 'I': return PyLong_FromUnsignedLong((uint32_t)bits);
    case 'q': return PyLong_FromLongLong((int64_t)bits);
    case 'Q': return PyLong_FromUnsignedLongLong(bits);
    case 'e':
        number = PyFloat_Unpack2((const char *)&bits, 1);
        return number == -1.0 && PyErr_Occurred() ? NULL : PyFloat_FromDouble(number);
    case 'f':
        memcpy(&single, &bits, sizeof single);
        return PyFloat_FromDouble(single);
    case 'd':
        memcpy(&number, &bits, sizeof number);
        return PyFloat_FromDouble(number);
    default: Py_RETURN_NONE;
    }
}

/* ---- Waiting */

/* Until `done` is at least `count`, without the interpreter's lock. */
static int
wait_done(const Lane *lane, uint64_t count, int64_t spin_ns, int64_t timeout_ns)
{
    if (load_acquire(lane->done) >= count)
        return 1;
    int arrived = 0;
    Py_BEGIN_ALLOW_THREADS
    const int64_t began = now_ns();
    int64_t pause = LEAST_SLEEP_NS, since = 0;
    uint64_t seen = 0, done;
    for (unsigned turn = 1; !(arrived = (done = load_acquire(lane->done)) >= count); turn++) {
        if (turn % 8 && spin_ns > 0) { /* the clock takes longer than a look */
            spin_pause();
            continue;
        }
        const int64_t waited = now_ns() - began;
        if (waited >= timeout_ns)
            break;
        if (done != seen) { /* tasks are being done: what is waited for will not take long either */
            seen = done;
            since = waited;
        }
        if (waited - since < spin_ns) {
            spin_pause();
            continue;
        }
        if ((waited - since) / YIELDS < spin_ns) { /* a sleep of microseconds takes a tenth of a millisecond */
            sched_yield();
            continue;
        }
        spin_ns = 0;
        const int64_t rest = timeout_ns - waited, nap = pause < rest ? pause : rest;
        const struct timespec time = {.tv_sec = nap / 1000000000, .tv_nsec = nap % 1000000000};
        nanosleep(&time, NULL); /* a signal may end it early: no harm */
        pause = pause * 2 < MOST_SLEEP_NS ? pause * 2 : MOST_SLEEP_NS;
    }
    Py_END_ALLOW_THREADS
    return arrived;
}

/* Until all results of a future are here. */
static int
wait_future(Future *future, int64_t spin_ns, int64_t timeout_ns)
{
    if (take_and_drop(future))
        return 1;
    const int64_t end = timeout_ns < INT64_MAX / 2 ? now_ns() + timeout_ns : INT64_MAX;
    if (!wait_done(future->lane, future->sequence + future->count, spin_ns, timeout_ns))
        return 0;
    for (unsigned turn = 1; !take_and_drop(future); turn++) {
        /* Its words are on their way, which is a matter of nanoseconds; a device that died leaves them out for ever. */
        if (turn % 8 == 0) {
            if (now_ns() >= end)
                return 0;
            if (turn >= 1024) {
                const struct timespec time = {.tv_nsec = LEAST_SLEEP_NS};
                Py_BEGIN_ALLOW_THREADS
                nanosleep(&time, NULL);
                Py_END_ALLOW_THREADS
            }
        }
        spin_pause();
    }
    return 1;
}

/* Until that many slots are free: their tasks acknowledged, their results taken. */
static int
wait_room(Lane *lane, uint64_t slots, int64_t spin_ns, int64_t timeout_ns)
{
    const int64_t end = timeout_ns < INT64_MAX / 2 ? now_ns() + timeout_ns : INT64_MAX;
    for (int64_t rest = timeout_ns; find_room(lane, slots) < slots; rest = end - now_ns()) {
        if (rest <= 0)
            return 0;
        const uint64_t all = lane->submitted + slots;
        if (wait_done(lane, all - lane->capacity, spin_ns, rest) && find_room(lane, slots) < slots) {
            /* The words of a result are on their way, or were lost with the device; or others took the room. */
            const struct timespec time = {.tv_nsec = LEAST_SLEEP_NS};
            Py_BEGIN_ALLOW_THREADS
            nanosleep(&time, NULL);
            Py_END_ALLOW_THREADS
        }
    }
    return 1;
}

static int
integers(PyObject *const *args, Py_ssize_t count, Py_ssize_t wanted, const char *name, long long *values)
{
    if (count != wanted) {
        PyErr_Format(PyExc_TypeError, "%s takes %zd arguments, got %zd", name, wanted, count);
        return -1;
    }
    for (Py_ssize_t i = 0; i < wanted; i++) {
        values[i] = PyLong_AsLongLong(args[i]);
        if (values[i] == -1 && PyErr_Occurred())
            return -1;
    }
    return 0;
}

/* ---- Futures */

static PyObject *
future_ready(PyObject *self, PyObject *Py_UNUSED(none))
{
    int arrived;
    Py_BEGIN_CRITICAL_SECTION(((Future *)self)->lane);
    arrived = take_and_drop((Future *)self);
    Py_END_CRITICAL_SECTION();
    return PyBool_FromLong(arrived);
}

static PyObject *
future_outcome(Future *future)
{
    if (future->batch)
        return Py_NewRef(future->code ? future->values : Py_None);
    return number_of(future->code, future->bits);
}

static PyObject *
do_value(Future *future)
{
    if (!take_and_drop(future)) {
        if (future->lane->known_done < future->sequence + future->count || !wait_future(future, STRAGGLER_NS, STRAGGLER_NS)) {
            PyErr_SetString(PyExc_RuntimeError, "the result is not there yet; wait for it with result()");
            return NULL;
        }
    }
    return future_outcome(future);
}

static PyObject *
future_value(PyObject *self, PyObject *Py_UNUSED(none))
{
    PyObject *result;
    Py_BEGIN_CRITICAL_SECTION(((Future *)self)->lane);
    result = do_value((Future *)self);
    Py_END_CRITICAL_SECTION();
    return result;
}

static PyObject *
future_wait(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    long long values[2];
    if (integers(args, count, 2, "wait", values) < 0)
        return NULL;
    int arrived;
    Py_BEGIN_CRITICAL_SECTION(((Future *)self)->lane);
    arrived = wait_future((Future *)self, values[0], values[1]);
    Py_END_CRITICAL_SECTION();
    return PyBool_FromLong(arrived);
}

/* Spin with the interpreter's lock, shortly. */
static int
spin_held(Future *future, int64_t nanoseconds)
{
    if (nanoseconds <= 0)
        return 0;
    const int64_t end = now_ns() + nanoseconds;
    for (unsigned turn = 1; turn % 8 || now_ns() < end; turn++) {
        if (take_and_drop(future))
            return 1;
        spin_pause();
    }
    return 0;
}

static PyObject *
future_spin(PyObject *self, PyObject *Py_UNUSED(none))
{
    Future *future = (Future *)self;
    int arrived;
    Py_BEGIN_CRITICAL_SECTION(future->lane);
    arrived = take_and_drop(future) || spin_held(future, future->lane->held_ns);
    Py_END_CRITICAL_SECTION();
    return PyBool_FromLong(arrived);
}

static PyObject *
future_result(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    Future *future = (Future *)self;
    PyObject *timeout = Py_None;
    const Py_ssize_t named = names == NULL ? 0 : PyTuple_GET_SIZE(names);
    if (count + named > 1 || (named && PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, 0), "timeout"))) {
        PyErr_SetString(PyExc_TypeError, "result takes one argument, timeout");
        return NULL;
    }
    if (count + named)
        timeout = args[0];
    const PyObject *failure = __atomic_load_n(&future->failure, __ATOMIC_ACQUIRE);
    if (likely(!future->batch && (failure == NULL || failure == Py_None))) {
        PyObject *outcome = NULL;
        int arrived;
        Py_BEGIN_CRITICAL_SECTION(future->lane);
        /* Most tasks come back before another thread could have been given the interpreter's lock and have returned it. */
        arrived = take_and_drop(future) || spin_held(future, future->lane->held_ns);
        if (arrived)
            outcome = future_outcome(future);
        Py_END_CRITICAL_SECTION();
        if (arrived)
            return outcome;
    }
    return PyObject_CallMethod(self, "wait_for_result", "O", timeout);
}

static PyObject *
future_wait_for_result(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(timeout))
{
    PyErr_SetString(PyExc_NotImplementedError, "a subclass of Future waits");
    return NULL;
}

static PyObject *
future_code(PyObject *self, void *Py_UNUSED(closure))
{
    const char code = ((Future *)self)->code;
    return PyUnicode_FromStringAndSize(&code, code ? 1 : 0);
}

static int
future_traverse(PyObject *self, visitproc visit, void *arg)
{
    Future *future = (Future *)self;
    Py_VISIT(future->lane);
    Py_VISIT(future->failure);
    return 0;
}

/* The lane stays, for methods need it: a cycle through it is broken there. */
static int
future_clear(PyObject *self)
{
    Py_CLEAR(((Future *)self)->failure);
    return 0;
}

static void
future_dealloc(PyObject *self)
{
    Future *future = (Future *)self;
    PyObject_GC_UnTrack(self);
    Py_CLEAR(future->failure);
    Py_CLEAR(future->values);
    Py_CLEAR(future->lane);
    Py_TYPE(self)->tp_free(self);
}

static PyMethodDef future_methods[] = {
    {"ready", future_ready, METH_NOARGS, "Whether the tasks are done and their results here. Never waits."},
    {"value", future_value, METH_NOARGS,
     "The result, which must be there: a number, for a batch a bytearray of numbers, or None."},
    {"wait", (PyCFunction)(void (*)(void))future_wait, METH_FASTCALL,
     "wait(spin_ns, timeout_ns): wait until ready, at most timeout_ns; whether it is."},
    {"spin", future_spin, METH_NOARGS, "Whether it is ready, or becomes so within the lane's held_ns. Other threads do not run meanwhile."},
    {"result", (PyCFunction)(void (*)(void))future_result, METH_FASTCALL | METH_KEYWORDS,
     "result(timeout=None): the result; waits for it, at most timeout seconds."},
    {"wait_for_result", future_wait_for_result, METH_O, "What result() calls when the result is not here, and for batches."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef future_members[] = {
    {"lane", T_OBJECT, offsetof(Future, lane), READONLY, "The lane it belongs to."},
    {"sequence", T_ULONGLONG, offsetof(Future, sequence), READONLY, "The number of its first task in the lane."},
    {"count", T_ULONGLONG, offsetof(Future, count), READONLY, "How many tasks it stands for."},
    {"batch", T_BOOL, offsetof(Future, batch), READONLY, "Whether it comes from push_many."},
    {"failure", T_OBJECT, offsetof(Future, failure), 0, "Why there will be no result, or None."},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef future_getset[] = {
    {"code", future_code, NULL, "The code of the result's type, empty when there is none.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyTypeObject FutureType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "kernelkeep._ring.Future",
    .tp_doc = PyDoc_STR("The result of one task, or of the tasks of one push_many. Made by a lane."),
    .tp_basicsize = sizeof(Future),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .tp_dealloc = future_dealloc,
    .tp_traverse = future_traverse,
    .tp_clear = future_clear,
    .tp_methods = future_methods,
    .tp_members = future_members,
    .tp_getset = future_getset,
};

/* ---- Lanes */

static PyObject *
lane_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"buffer", "head_at", "done_at", "results_at", "slots_at", "slot", "capacity", "future_type", NULL};
    PyObject *buffer, *future_type;
    Py_ssize_t at[4], slot, capacity;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OnnnnnnO", names, &buffer, &at[0], &at[1], &at[2], &at[3], &slot,
                                     &capacity, &future_type))
        return NULL;
    if (!PyType_Check(future_type) || !PyType_IsSubtype((PyTypeObject *)future_type, &FutureType)) {
        PyErr_SetString(PyExc_TypeError, "future_type must be a subclass of Future");
        return NULL;
    }
    if (capacity < 1 || capacity > (1 << 24) || (capacity & (capacity - 1)) || slot < 16 || slot > MAX_SLOT ||
        (slot & (slot - 1))) {
        PyErr_Format(PyExc_ValueError, "capacity and slot must be powers of two, slot 16 to %d; got %zd and %zd", MAX_SLOT,
                     capacity, slot);
        return NULL;
    }
    Lane *lane = (Lane *)type->tp_alloc(type, 0);
    if (lane == NULL)
        return NULL;
    if (PyObject_GetBuffer(buffer, &lane->view, PyBUF_WRITABLE) < 0)
        goto failed;
    lane->has_view = 1;
    const Py_ssize_t sizes[4] = {8 * (COPY_AT + COPY_WORDS), 8, capacity * 16, capacity * slot};
    for (int i = 0; i < 4; i++) {
        if (at[i] < 0 || at[i] > lane->view.len - sizes[i] || ((uintptr_t)lane->view.buf + (size_t)at[i]) % 8) {
            PyErr_Format(PyExc_ValueError, "offset %zd with %zd bytes does not lie in the buffer of %zd, at a multiple of 8",
                         at[i], sizes[i], lane->view.len);
            goto failed;
        }
    }
    char *base = lane->view.buf;
    lane->head = (uint64_t *)(void *)(base + at[0]);
    lane->done = (uint64_t *)(void *)(base + at[1]);
    lane->results = (uint64_t *)(void *)(base + at[2]);
    lane->slots = base + at[3];
    lane->slot = (uint64_t)slot;
    lane->capacity = (uint64_t)capacity;
    lane->held_ns = HELD_NS;
    lane->future_type = (PyTypeObject *)Py_NewRef(future_type);
    lane->submitted = load_acquire(lane->head);
    lane->known_done = load_acquire(lane->done);
    if (lane->known_done > lane->submitted || lane->submitted - lane->known_done > lane->capacity) {
        PyErr_Format(PyExc_ValueError, "the ring is damaged: %llu tasks submitted, %llu done, capacity %zd",
                     (unsigned long long)lane->submitted, (unsigned long long)lane->known_done, capacity);
        goto failed;
    }
    lane->pending = PyMem_Calloc((size_t)capacity, sizeof *lane->pending);
    if (lane->pending == NULL) {
        PyErr_NoMemory();
        goto failed;
    }
    return (PyObject *)lane;
failed:
    Py_DECREF(lane);
    return NULL;
}

static Future *
new_future(Lane *lane, char code, char batch)
{
    Future *future = (Future *)lane->future_type->tp_alloc(lane->future_type, 0);
    if (future != NULL) {
        future->lane = (Lane *)Py_NewRef(lane);
        future->code = code;
        future->batch = batch;
    }
    return future;
}

/* A future for a push, from what was set aside if there is something. */
static inline Future *
take_spare(Lane *lane, char code)
{
    Future *future = lane->spare;
    if (unlikely(future == NULL))
        return new_future(lane, code, 0);
    lane->spare = NULL;
    future->lane = (Lane *)Py_NewRef(lane);
    future->code = code;
    PyObject_GC_Track(future);
    return future;
}

/* Set a future aside. Nobody can find it: it belongs to no lane, which would be a cycle. May run Python code. */
static inline void
make_spare(Lane *lane)
{
    Future *future = (Future *)lane->future_type->tp_alloc(lane->future_type, 0);
    if (unlikely(future == NULL)) {
        PyErr_Clear(); /* the next push tries again, and says so */
        return;
    }
    PyObject_GC_UnTrack(future);
    if (likely(lane->spare == NULL))
        lane->spare = future;
    else { /* Python code that ran meanwhile has pushed */
        PyObject_GC_Track(future);
        Py_DECREF(future);
    }
}

static void
drop_spare(Lane *lane)
{
    Future *future = lane->spare;
    if (future != NULL) {
        lane->spare = NULL;
        PyObject_GC_Track(future); /* its end takes it out */
        Py_DECREF(future);
    }
}

/* Tags return: spoil those that are expected and there already. Before the copy is written, since from then on the task may run. */
static inline void
spoil_old_tags(Lane *lane, char code, uint64_t count)
{
    if (!code || likely(!((lane->submitted + count) >> 32)))
        return;
    for (uint64_t sequence = lane->submitted; sequence < lane->submitted + count; sequence++) {
        uint64_t *words = lane->results + 2 * (sequence & (lane->capacity - 1));
        const uint32_t tag = (uint32_t)(sequence + 1);
        for (int word = 0; word < 2; word++)
            if ((uint32_t)(__atomic_load_n(words + word, __ATOMIC_RELAXED) >> 32) == tag)
                __atomic_store_n(words + word, (uint64_t)~tag << 32, __ATOMIC_RELAXED);
    }
}

/* The copy of the newest record beside the head: one read gives the device both. `record` is NULL where there is none. */
static inline void
write_copy(Lane *lane, const char *record, uint64_t end)
{
    uint64_t *words = lane->head + COPY_AT;
#ifdef __aarch64__
    __asm__ volatile("dmb osh" ::: "memory");
#endif
    const uint64_t count = lane->slot / 4 < COPY_WORDS ? lane->slot / 4 : COPY_WORDS;
    if (record == NULL || end > 4 * COPY_WORDS) { /* the tag of a task that is done: no block expects it */
        for (uint64_t i = 0; i < count; i++)
            __atomic_store_n(words + i, (uint64_t)(uint32_t)lane->known_done << 32, __ATOMIC_RELAXED);
        return;
    }
    const uint64_t tag = (uint64_t)(uint32_t)(lane->submitted + 1) << 32;
    for (uint64_t i = 0; i < count; i++) {
        uint32_t part = 0;
        if (4 * i < end)
            memcpy(&part, record + 4 * i, 4);
        __atomic_store_n(words + i, tag | part, __ATOMIC_RELEASE);
    }
}

/* The records are written: make them the device's. */
static void
publish(Lane *lane, Future *future, uint64_t count)
{
    future->sequence = lane->submitted;
    future->count = future->left = count;
    if (future->code)
        lane->pending[lane->next++ & (lane->capacity - 1)] = (Future *)Py_NewRef(future);
    lane->submitted += count;
    store_release(lane->head, lane->submitted);
}

static int
out_of_range(PyObject *value, Py_ssize_t number, int bits, int is_signed)
{
    if (is_signed)
        PyErr_Format(PyExc_OverflowError, "argument %zd must be %lld to %lld, got %S", number,
                     (long long)(-1 - (INT64_MAX >> (64 - bits))), (long long)(INT64_MAX >> (64 - bits)), value);
    else
        PyErr_Format(PyExc_OverflowError, "argument %zd must be 0 to %llu, got %S", number,
                     (unsigned long long)(UINT64_MAX >> (64 - bits)), value);
    return -1;
}

static int
put_integer(PyObject *value, Py_ssize_t number, int bits, int is_signed, char *to)
{
    int overflow, status = 0;
    PyObject *whole = value;
    if (likely(PyLong_CheckExact(value)))
        Py_INCREF(value);
    else if ((whole = PyNumber_Index(value)) == NULL) {
        if (PyErr_ExceptionMatches(PyExc_TypeError)) {
            PyErr_Clear();
            PyErr_Format(PyExc_TypeError, "argument %zd must be an integer, got %R", number, value);
        }
        return -1;
    }
    const int64_t small = PyLong_AsLongLongAndOverflow(whole, &overflow);
    uint64_t put = (uint64_t)small;
    if (overflow) {
        if (overflow > 0 && bits == 64 && !is_signed) {
            put = PyLong_AsUnsignedLongLong(whole);
            if (put == (uint64_t)-1 && PyErr_Occurred()) {
                PyErr_Clear();
                status = out_of_range(whole, number, bits, is_signed);
            }
        }
        else
            status = out_of_range(whole, number, bits, is_signed);
    }
    else if (is_signed ? small > INT64_MAX >> (64 - bits) || small < -1 - (INT64_MAX >> (64 - bits))
                       : small < 0 || put > UINT64_MAX >> (64 - bits))
        status = out_of_range(whole, number, bits, is_signed);
    Py_DECREF(whole);
    memcpy(to, &put, (size_t)bits / 8); /* little-endian */
    return status;
}

static int
put_float(PyObject *value, Py_ssize_t number, char code, char *to)
{
    const double wide = likely(PyFloat_CheckExact(value)) ? PyFloat_AS_DOUBLE(value) : PyFloat_AsDouble(value);
    int status = 0;
    if (unlikely(wide == -1.0) && PyErr_Occurred())
        status = -1;
    else if (code == 'd')
        memcpy(to, &wide, sizeof wide);
    else if (code == 'f') {
        const float single = (float)wide;
        memcpy(to, &single, sizeof single);
        if (unlikely(__builtin_isinf(single) && !__builtin_isinf(wide))) {
            PyErr_SetNone(PyExc_OverflowError);
            status = -1;
        }
    }
    else
        status = PyFloat_Pack2(wide, to, 1);
    if (likely(status == 0))
        return 0;
    if (PyErr_ExceptionMatches(PyExc_TypeError)) {
        PyErr_Clear();
        PyErr_Format(PyExc_TypeError, "argument %zd must be a number, got %R", number, value);
    }
    else if (PyErr_ExceptionMatches(PyExc_OverflowError)) {
        PyErr_Clear();
        PyErr_Format(PyExc_OverflowError, "argument %zd is too large for type '%c', got %S", number, code, value);
    }
    return -1;
}

static int
put_argument(PyObject *value, Py_ssize_t number, char code, char *to)
{
    int truth;
    switch (code) {
    case 'f': case 'd': case 'e': return put_float(value, number, code, to);
    case 'i': return put_integer(value, number, 32, 1, to);
    case 'I': return put_integer(value, number, 32, 0, to);
    case 'q': return put_integer(value, number, 64, 1, to);
    case 'Q': return put_integer(value, number, 64, 0, to);
    case 'h': return put_integer(value, number, 16, 1, to);
    case 'H': return put_integer(value, number, 16, 0, to);
    case 'b': return put_integer(value, number, 8, 1, to);
    case 'B': return put_integer(value, number, 8, 0, to);
    default: /* '?' */
        truth = PyObject_IsTrue(value);
        *to = (char)truth;
        return truth < 0 ? -1 : 0;
    }
}

static PyObject *
do_push(Lane *lane, PyObject *plan_bytes, PyObject *const *values, Py_ssize_t count)
{
    const char *plan = PyBytes_AS_STRING(plan_bytes);
    const Py_ssize_t size = PyBytes_GET_SIZE(plan_bytes), places = (size - 5) / 3;
    if (size < 5 || (size - 5) % 3) {
        PyErr_Format(PyExc_ValueError, "a plan has 5 bytes and 3 for each argument, got %zd", size);
        return NULL;
    }
    if (count != places) {
        PyErr_Format(PyExc_TypeError, "the task takes %zd arguments, got %zd", places, count);
        return NULL;
    }
    const char code = plan[4];
    if (code && !code_bytes(code)) {
        refuse_code(code);
        return NULL;
    }
    uint64_t end = HEADER_BYTES;
    for (Py_ssize_t i = 0; i < places; i++) {
        const char *place = plan + 5 + 3 * i;
        const size_t bytes = code_bytes(place[0]);
        uint16_t at;
        memcpy(&at, place + 1, sizeof at);
        if (!bytes) {
            refuse_code(place[0]);
            return NULL;
        }
        if (at < HEADER_BYTES || at + bytes > lane->slot) {
            PyErr_Format(PyExc_ValueError, "argument %zd at byte %d does not lie in a slot of %d bytes", i + 1, (int)at,
                         (int)lane->slot);
            return NULL;
        }
        if (at + bytes > end)
            end = at + bytes;
    }
    char record[MAX_SLOT];
    memcpy(record, plan, 4);
    memset(record + 4, 0, (end + 3) / 4 * 4 - 4);
    for (Py_ssize_t i = 0; i < places; i++) {
        uint16_t at;
        memcpy(&at, plan + 6 + 3 * i, sizeof at);
        if (put_argument(values[i], i + 1, plan[5 + 3 * i], record + at) < 0)
            return NULL;
    }
    if (find_room(lane, 1) < 1)
        Py_RETURN_NONE;
    Future *future = take_spare(lane, code);
    if (future == NULL)
        return NULL;
    if (unlikely(known_room(lane) < 1)) { /* another thread took it meanwhile */
        Py_DECREF(future);
        Py_RETURN_NONE;
    }
    const uint32_t tag = (uint32_t)(lane->submitted + 1);
    memcpy(record + 4, &tag, sizeof tag);
    memcpy(lane->slots + (lane->submitted & (lane->capacity - 1)) * lane->slot, record, end);
    spoil_old_tags(lane, code, 1);
    write_copy(lane, record, end);
    publish(lane, future, 1);
    make_spare(lane);
    return (PyObject *)future;
}

static PyObject *
lane_push(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    if (count != 2 || !PyBytes_Check(args[0]) || !PyTuple_Check(args[1])) {
        PyErr_SetString(PyExc_TypeError, "push takes a plan, which is bytes, and a tuple of arguments");
        return NULL;
    }
    PyObject *result;
    Py_BEGIN_CRITICAL_SECTION(self);
    result = do_push((Lane *)self, args[0], ((PyTupleObject *)args[1])->ob_item, PyTuple_GET_SIZE(args[1]));
    Py_END_CRITICAL_SECTION();
    return result;
}

static inline __attribute__((always_inline)) void
copy_rows(char *to, uint64_t slot, const char *from, size_t bytes, uint64_t count, uint64_t header)
{
    for (uint64_t i = 0; i < count; i++, to += slot, from += bytes, header += UINT64_C(1) << 32) {
        memcpy(to, &header, HEADER_BYTES);
        memcpy(to + HEADER_BYTES, from, bytes);
    }
}

/* One piece of the ring without its end; the usual widths are compiled into plain moves. `header` is that of the first record. */
static void
copy_piece(char *to, uint64_t slot, const char *from, size_t bytes, uint64_t count, uint64_t header)
{
    switch (bytes) {
    case 0: copy_rows(to, slot, from, 0, count, header); break;
    case 4: copy_rows(to, slot, from, 4, count, header); break;
    case 8: copy_rows(to, slot, from, 8, count, header); break;
    case 16: copy_rows(to, slot, from, 16, count, header); break;
    case 24: copy_rows(to, slot, from, 24, count, header); break;
    default: copy_rows(to, slot, from, bytes, count, header);
    }
}

static PyObject *
do_push_many(Lane *lane, PyObject *const *args, Py_ssize_t given)
{
    if (given < 4 || given > 6) {
        PyErr_Format(PyExc_TypeError, "push_many takes 4 to 6 arguments, got %zd", given);
        return NULL;
    }
    const unsigned long task = PyLong_AsUnsignedLong(args[0]);
    const Py_ssize_t bytes = PyLong_AsSsize_t(args[2]), count = PyLong_AsSsize_t(args[3]);
    const Py_ssize_t start = given > 5 ? PyLong_AsSsize_t(args[5]) : 0;
    if (PyErr_Occurred())
        return NULL;
    if (task > UINT32_MAX) {
        PyErr_Format(PyExc_OverflowError, "task must be 0 to %lu, got %lu", (unsigned long)UINT32_MAX, task);
        return NULL;
    }
    char code = 0;
    if (given > 4) {
        Py_ssize_t length;
        const char *text = PyUnicode_AsUTF8AndSize(args[4], &length);
        if (text == NULL)
            return NULL;
        if (length && (length > 1 || !code_bytes(*text))) {
            PyErr_Format(PyExc_ValueError, "a type's code must be one of ? b B h H i I q Q e f d, got %R", args[4]);
            return NULL;
        }
        code = length ? *text : 0;
    }
    if (bytes < 0 || (uint64_t)bytes > lane->slot - HEADER_BYTES) {
        PyErr_Format(PyExc_ValueError, "row_bytes must be 0 to %d, got %zd", (int)lane->slot - HEADER_BYTES, bytes);
        return NULL;
    }
    Py_buffer rows;
    if (PyObject_GetBuffer(args[1], &rows, PyBUF_SIMPLE) < 0)
        return NULL;
    PyObject *result = NULL;
    Future *future = NULL;
    if (start < 0 || count < start || (bytes && count > rows.len / bytes)) {
        PyErr_Format(PyExc_ValueError, "rows %zd to %zd of %zd bytes do not lie in %zd bytes", start, count, bytes, rows.len);
        goto end;
    }
    uint64_t taken = (uint64_t)(count - start);
    uint64_t room = taken ? find_room(lane, taken) : 0;
    if (room < taken)
        taken = room;
    if (!taken) {
        result = Py_BuildValue("(iO)", 0, Py_None);
        goto end;
    }
    future = new_future(lane, code, 1);
    if (future == NULL)
        goto end;
    if (code) {
        future->values = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)(taken * code_bytes(code)));
        if (future->values == NULL)
            goto end;
    }
    result = Py_BuildValue("(KO)", (unsigned long long)taken, future);
    if (result == NULL)
        goto end;
    /* No Python code runs from here on. */
    if (unlikely((room = known_room(lane)) < taken)) { /* other threads submitted meanwhile: say that nothing was taken */
        Py_DECREF(result);
        result = Py_BuildValue("(iO)", 0, Py_None);
        goto end;
    }
    const uint64_t begin = lane->submitted & (lane->capacity - 1), piece = lane->capacity - begin;
    const uint64_t one = taken < piece ? taken : piece;
    const char *from = (const char *)rows.buf + start * bytes;
    const uint64_t header = (uint64_t)task | (lane->submitted + 1) << 32; /* the tag behind the number */
    copy_piece(lane->slots + begin * lane->slot, lane->slot, from, (size_t)bytes, one, header);
    copy_piece(lane->slots, lane->slot, from + one * (uint64_t)bytes, (size_t)bytes, taken - one, header + (one << 32));
    spoil_old_tags(lane, code, taken);
    write_copy(lane, NULL, 0);
    publish(lane, future, taken);
end:
    Py_XDECREF(future);
    PyBuffer_Release(&rows);
    return result;
}

static PyObject *
lane_push_many(PyObject *self, PyObject *const *args, Py_ssize_t given)
{
    PyObject *result;
    Py_BEGIN_CRITICAL_SECTION(self);
    result = do_push_many((Lane *)self, args, given);
    Py_END_CRITICAL_SECTION();
    return result;
}

static PyObject *
lane_wait(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    long long values[3];
    if (integers(args, count, 3, "wait", values) < 0)
        return NULL;
    return PyBool_FromLong(values[0] <= 0 || wait_done((Lane *)self, (uint64_t)values[0], values[1], values[2]));
}

static PyObject *
lane_wait_for_room(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Lane *lane = (Lane *)self;
    long long values[3] = {0, 0, 1};
    if (integers(args, count, count == 3 ? 3 : 2, "wait_for_room", values) < 0)
        return NULL;
    if (values[2] < 1 || (uint64_t)values[2] > lane->capacity) {
        PyErr_Format(PyExc_ValueError, "slots must be 1 to %llu, got %lld", (unsigned long long)lane->capacity, values[2]);
        return NULL;
    }
    int fits;
    Py_BEGIN_CRITICAL_SECTION(self);
    fits = wait_room(lane, (uint64_t)values[2], values[0], values[1]);
    Py_END_CRITICAL_SECTION();
    return PyBool_FromLong(fits);
}

static PyObject *
lane_done(PyObject *self, void *Py_UNUSED(closure))
{
    return PyLong_FromUnsignedLongLong(load_acquire(((Lane *)self)->done));
}

static PyObject *
lane_pending(PyObject *self, void *Py_UNUSED(closure))
{
    uint64_t pending;
    Py_BEGIN_CRITICAL_SECTION(self);
    pending = ((Lane *)self)->next - ((Lane *)self)->first;
    Py_END_CRITICAL_SECTION();
    return PyLong_FromUnsignedLongLong(pending);
}

static PyObject *
lane_buffer(PyObject *self, void *Py_UNUSED(closure))
{
    return Py_NewRef(((Lane *)self)->view.obj);
}

static int
lane_traverse(PyObject *self, visitproc visit, void *arg)
{
    Lane *lane = (Lane *)self;
    for (uint64_t i = lane->first; i != lane->next; i++)
        Py_VISIT(lane->pending[i & (lane->capacity - 1)]);
    Py_VISIT(lane->context);
    Py_VISIT(lane->failure);
    Py_VISIT(lane->future_type);
    if (lane->has_view)
        Py_VISIT(lane->view.obj);
    return 0;
}

/* The view stays until the end: futures may still look into it. */
static int
lane_clear(PyObject *self)
{
    Lane *lane = (Lane *)self;
    while (lane->first != lane->next)
        Py_DECREF(lane->pending[lane->first++ & (lane->capacity - 1)]);
    drop_spare(lane);
    Py_CLEAR(lane->context);
    Py_CLEAR(lane->failure);
    return 0;
}

static void
lane_dealloc(PyObject *self)
{
    Lane *lane = (Lane *)self;
    PyObject_GC_UnTrack(self);
    lane_clear(self);
    PyMem_Free(lane->pending);
    Py_CLEAR(lane->future_type);
    if (lane->has_view)
        PyBuffer_Release(&lane->view);
    Py_TYPE(self)->tp_free(self);
}

static PyMethodDef lane_methods[] = {
    {"push", (PyCFunction)(void (*)(void))lane_push, METH_FASTCALL,
     "push(plan, args): submit one task; its future, or None when the ring is full."},
    {"push_many", (PyCFunction)(void (*)(void))lane_push_many, METH_FASTCALL,
     "push_many(task, rows, row_bytes, count, result_code='', start=0): submit the rows from start on, as many as fit: (how many\n"
     "were taken, their future or None). A row is the arguments as they lie in a slot from byte 8 on."},
    {"wait", (PyCFunction)(void (*)(void))lane_wait, METH_FASTCALL,
     "wait(count, spin_ns, timeout_ns): wait until done is at least count, at most timeout_ns; whether it is."},
    {"wait_for_room", (PyCFunction)(void (*)(void))lane_wait_for_room, METH_FASTCALL,
     "wait_for_room(spin_ns, timeout_ns, slots=1): wait until that many tasks fit into the ring, at most timeout_ns; whether they do."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef lane_members[] = {
    {"submitted", T_ULONGLONG, offsetof(Lane, submitted), READONLY, "How many tasks were submitted ever."},
    {"context", T_OBJECT, offsetof(Lane, context), 0, "What the futures ask how to wait."},
    {"failure", T_OBJECT, offsetof(Lane, failure), 0, "Why the tasks that are not done never will be, or None."},
    {"held_ns", T_LONGLONG, offsetof(Lane, held_ns), 0, "How long result() spins before it lets go of the interpreter's lock."},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef lane_getset[] = {
    {"done", lane_done, NULL, "How many tasks the device has acknowledged.", NULL},
    {"pending", lane_pending, NULL, "How many futures the lane keeps because their results are still in the ring.", NULL},
    {"buffer", lane_buffer, NULL, "The buffer with the ring.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyTypeObject LaneType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "kernelkeep._ring.Lane",
    .tp_doc = PyDoc_STR("Lane(buffer, head_at, done_at, results_at, slots_at, slot, capacity, future_type)"),
    .tp_basicsize = sizeof(Lane),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = lane_new,
    .tp_dealloc = lane_dealloc,
    .tp_traverse = lane_traverse,
    .tp_clear = lane_clear,
    .tp_methods = lane_methods,
    .tp_members = lane_members,
    .tp_getset = lane_getset,
};

/* ---- Submitters: what a resident is derived from, so that its `submit` runs no Python code where nothing is unusual */

typedef struct {
    PyObject_HEAD
    PyObject *plans;  /* a dictionary: the plan of each task. It is replaced, never changed */
    PyObject *lanes;  /* a tuple, always the same */
    uint64_t serial;  /* of this submitter; 0: it has no lanes */
} Submitter;

#define KNOWN_LANES 4

/* The lanes that this thread uses, of some submitters. One with that serial number holds them. */
static _Thread_local struct {
    uint64_t serial;
    Lane *lane;
} known_lanes[KNOWN_LANES];

static uint64_t last_serial;

/* The lane of this thread, a borrowed reference; NULL with an exception set. */
static Lane *
lane_of_thread(Submitter *submitter)
{
    const uint64_t serial = submitter->serial;
    const unsigned at = serial % KNOWN_LANES;
    if (likely(known_lanes[at].serial == serial && serial))
        return known_lanes[at].lane;
    PyObject *found = PyObject_CallMethod((PyObject *)submitter, "_lane_of_thread", NULL);
    if (found == NULL)
        return NULL;
    PyObject *lanes = submitter->lanes;
    Lane *lane = NULL;
    for (Py_ssize_t i = 0; lanes != NULL && i < PyTuple_GET_SIZE(lanes); i++)
        if (PyTuple_GET_ITEM(lanes, i) == found)
            lane = (Lane *)found;
    Py_DECREF(found); /* the tuple has it */
    if (lane == NULL) {
        PyErr_SetString(PyExc_TypeError, "_lane_of_thread must return one of the lanes");
        return NULL;
    }
    known_lanes[at].serial = serial;
    known_lanes[at].lane = lane;
    return lane;
}

static PyObject *
submit_slowly(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    PyObject *method = PyObject_GetAttrString(self, "_submit_slowly");
    if (method == NULL)
        return NULL;
    PyObject *result = PyObject_Vectorcall(method, args, (size_t)count, names);
    Py_DECREF(method);
    return result;
}

static PyObject *
submitter_submit(PyObject *self, PyObject *const *args, Py_ssize_t count, PyObject *names)
{
    Submitter *submitter = (Submitter *)self;
    PyObject *plan = NULL, *future = NULL;
    if (!count) {
        PyErr_SetString(PyExc_TypeError, "submit takes the name of a task, and its arguments");
        return NULL;
    }
    if (names != NULL && PyTuple_GET_SIZE(names))
        return submit_slowly(self, args, count, names);
    Py_BEGIN_CRITICAL_SECTION(self);
    if (likely(submitter->plans != NULL))
        plan = Py_XNewRef(PyDict_GetItemWithError(submitter->plans, args[0]));
    Py_END_CRITICAL_SECTION();
    if (likely(plan != NULL && PyBytes_Check(plan))) {
        Lane *lane = lane_of_thread(submitter);
        if (likely(lane != NULL)) {
            Py_INCREF(lane);
            Py_BEGIN_CRITICAL_SECTION(lane);
            future = do_push(lane, plan, args + 1, count - 1);
            Py_END_CRITICAL_SECTION();
            Py_DECREF(lane);
        }
    }
    Py_XDECREF(plan);
    if (likely(future != NULL && future != Py_None))
        return future;
    /* Unknown tasks, wrong arguments, a full ring: that takes its time, and needs good words. */
    if (future == NULL && PyErr_Occurred()) {
        if (!PyErr_ExceptionMatches(PyExc_TypeError) && !PyErr_ExceptionMatches(PyExc_OverflowError))
            return NULL;
        PyErr_Clear();
    }
    Py_XDECREF(future);
    return submit_slowly(self, args, count, NULL);
}

static PyObject *
submitter_set_plans(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Submitter *submitter = (Submitter *)self;
    if (count != 2 || !PyDict_Check(args[0]) || !PyTuple_Check(args[1])) {
        PyErr_SetString(PyExc_TypeError, "set_plans takes a dictionary of plans and a tuple of lanes");
        return NULL;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args[1]); i++)
        if (Py_TYPE(PyTuple_GET_ITEM(args[1], i)) != &LaneType) {
            PyErr_SetString(PyExc_TypeError, "each of the lanes must be a Lane");
            return NULL;
        }
    PyObject *plans;
    int other;
    Py_BEGIN_CRITICAL_SECTION(self);
    plans = submitter->plans;
    other = submitter->lanes != NULL && submitter->lanes != args[1]; /* threads know lanes that this one holds */
    if (!other) {
        submitter->plans = Py_NewRef(args[0]);
        if (submitter->lanes == NULL) {
            submitter->lanes = Py_NewRef(args[1]);
            submitter->serial = __atomic_add_fetch(&last_serial, 1, __ATOMIC_RELAXED);
        }
    }
    Py_END_CRITICAL_SECTION();
    if (other) {
        PyErr_SetString(PyExc_ValueError, "lanes must be the same as before");
        return NULL;
    }
    Py_XDECREF(plans);
    Py_RETURN_NONE;
}

static int
submitter_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(((Submitter *)self)->plans);
    Py_VISIT(((Submitter *)self)->lanes);
    return 0;
}

static int
submitter_clear(PyObject *self)
{
    ((Submitter *)self)->serial = 0;
    Py_CLEAR(((Submitter *)self)->plans);
    Py_CLEAR(((Submitter *)self)->lanes);
    return 0;
}

static void
submitter_dealloc(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    submitter_clear(self);
    Py_TYPE(self)->tp_free(self);
}

static PyMethodDef submitter_methods[] = {
    {"submit", (PyCFunction)(void (*)(void))submitter_submit, METH_FASTCALL | METH_KEYWORDS,
     "submit($self, name, /, *args)\n--\n\n"
     "Have a task run; returns at once, unless the ring of the block is full. The future has its result."},
    {"set_plans", (PyCFunction)(void (*)(void))submitter_set_plans, METH_FASTCALL,
     "set_plans(plans, lanes): a dictionary that no longer changes, and a tuple that is the same each time."},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject SubmitterType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "kernelkeep._ring.Submitter",
    .tp_doc = PyDoc_STR("Submits tasks. A subclass has _lane_of_thread(), and _submit_slowly(name, *args) for what is unusual."),
    .tp_basicsize = sizeof(Submitter),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .tp_new = PyType_GenericNew,
    .tp_dealloc = submitter_dealloc,
    .tp_traverse = submitter_traverse,
    .tp_clear = submitter_clear,
    .tp_methods = submitter_methods,
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "kernelkeep._ring",
    .m_doc = "One lane of a resident kernel's ring, and the futures of the tasks in it.",
    .m_size = -1,
};

PyMODINIT_FUNC
PyInit__ring(void)
{
    PyObject *made = PyModule_Create(&module);
    if (made == NULL)
        return NULL;
#ifdef Py_GIL_DISABLED
    PyUnstable_Module_SetGIL(made, Py_MOD_GIL_NOT_USED);
#endif
    if (PyModule_AddType(made, &FutureType) < 0 || PyModule_AddType(made, &LaneType) < 0 ||
        PyModule_AddType(made, &SubmitterType) < 0) {
        Py_DECREF(made);
        return NULL;
    }
    return made;
}
