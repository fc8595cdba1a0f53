/* Reads whole files in one call: every hit on disk does, and calls from Python take longer than the system needs.
 *
 *     read_file(path, flags, most)         -> (data, modified, size, mode, owner)
 *     read_trusted(path, flags, most, owners) -> (data, modified) or None
 *     read_files(prefix, files, flags, owners) -> the bytes of several files, one behind the other, or None
 *     is_private_folder(path, owners)      -> bool
 *
 * `data` is None, and nothing is read, where the path leads to anything but a regular file or to one of more than `most` bytes.
 * A file that grows meanwhile gives one byte more than `size`. `files` is a list of names, to be put behind the prefix, and sizes;
 * None where one of them is no regular file of this size, or could have been written by anybody but the users `owners`, a frozenset
 * of numbers. `read_trusted` is None where anything is out of the ordinary, and then says nothing of what.
 * `is_private_folder`: whether a path leads to a folder, not through a link, that only the users `owners` can write to;
 * `os.lstat` makes an object of twenty fields, which takes longer than to ask.
 *
 * `storage/reading.py` has the twins in plain Python, which are used where this module was not built.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#if !defined(__linux__)
#error "only for Linux"
#endif

/* -1 with errno set where the system refuses, -2 where a signal's handler raised. */
static int
open_and_look(const char *path, int flags, struct stat *found)
{
    int descriptor, looked;
    for (;;) {
        Py_BEGIN_ALLOW_THREADS
        descriptor = open(path, flags);
        looked = descriptor < 0 ? 0 : fstat(descriptor, found);
        Py_END_ALLOW_THREADS
        if (descriptor >= 0 && looked == 0) {
            return descriptor;
        }
        if (descriptor >= 0) {
            int error = errno;
            close(descriptor);
            errno = error;
            return -1;
        }
        if (errno != EINTR) {
            return -1;
        }
        if (PyErr_CheckSignals() < 0) {
            return -2;
        }
    }
}

/* Read until `room` is full, or the file ends; how many bytes that are, or -1 with an exception. Without a path there is none where
 * the system refuses, only where a signal's handler raised. */
static Py_ssize_t
read_into(int descriptor, char *room, Py_ssize_t size, PyObject *path)
{
    Py_ssize_t done = 0;
    while (done < size) {
        ssize_t more;
        Py_BEGIN_ALLOW_THREADS
        more = read(descriptor, room + done, (size_t)(size - done));
        Py_END_ALLOW_THREADS
        if (more == 0) {
            break;
        }
        if (more > 0) {
            done += more;
            if (done == size - 1) {
                break; /* as large as it was said to be; the last byte of `room` tells one that has grown */
            }
        } else if (errno != EINTR) {
            if (path != NULL) {
                PyErr_SetFromErrnoWithFilenameObject(PyExc_OSError, path);
            }
            return -1;
        } else if (PyErr_CheckSignals() < 0) {
            return -1;
        }
    }
    return done;
}

/* The bytes up to one more than the file's size; NULL with an exception, as `read_into` has it. */
static PyObject *
read_all(int descriptor, Py_ssize_t size, PyObject *path)
{
    Py_ssize_t done;
    PyObject *data = PyBytes_FromStringAndSize(NULL, size + 1);
    if (data == NULL) {
        return NULL;
    }
    done = read_into(descriptor, PyBytes_AS_STRING(data), size + 1, path);
    if (done < 0) {
        Py_DECREF(data);
        return NULL;
    }
    if (done != size + 1) {
        _PyBytes_Resize(&data, done); /* NULL with an exception where that fails */
    }
    return data;
}

static PyObject *
read_file(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    PyObject *path = NULL, *data, *result = NULL;
    struct stat found;
    long flags;
    long long most;
    int descriptor;
    if (count != 3) {
        PyErr_SetString(PyExc_TypeError, "read_file takes a path, flags and a number of bytes");
        return NULL;
    }
    flags = PyLong_AsLong(args[1]);
    most = PyLong_AsLongLong(args[2]);
    if (PyErr_Occurred() || !PyUnicode_FSConverter(args[0], &path)) {
        return NULL;
    }
    descriptor = open_and_look(PyBytes_AS_STRING(path), (int)flags, &found);
    Py_DECREF(path);
    if (descriptor < 0) {
        return descriptor == -2 ? NULL : PyErr_SetFromErrnoWithFilenameObject(PyExc_OSError, args[0]);
    }
    if (!S_ISREG(found.st_mode) || found.st_size > most) {
        data = Py_NewRef(Py_None);
    } else {
        data = read_all(descriptor, (Py_ssize_t)found.st_size, args[0]);
    }
    close(descriptor); /* read only: nothing is left to be written */
    if (data != NULL) {
        result = Py_BuildValue("NdLII", data, (double)found.st_mtim.tv_sec + 1e-9 * (double)found.st_mtim.tv_nsec,
                               (long long)found.st_size, (unsigned int)found.st_mode, (unsigned int)found.st_uid);
    }
    return result;
}

/* Whether only these users could have written a file; -1 with an exception. */
static int
is_theirs(const struct stat *found, PyObject *owners)
{
    PyObject *owner;
    int theirs;
    if (found->st_mode & (S_IWGRP | S_IWOTH)) {
        return 0;
    }
    owner = PyLong_FromUnsignedLong(found->st_uid);
    if (owner == NULL) {
        return -1;
    }
    theirs = PySet_Contains(owners, owner);
    Py_DECREF(owner);
    return theirs;
}

static PyObject *
read_trusted(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    PyObject *path = NULL, *data;
    struct stat found;
    long flags;
    long long most;
    int descriptor, theirs;
    if (count != 4 || !PyFrozenSet_CheckExact(args[3])) {
        PyErr_SetString(PyExc_TypeError, "read_trusted takes a path, flags, a number of bytes and a frozenset");
        return NULL;
    }
    flags = PyLong_AsLong(args[1]);
    most = PyLong_AsLongLong(args[2]);
    if (PyErr_Occurred() || !PyUnicode_FSConverter(args[0], &path)) {
        return NULL;
    }
    descriptor = open_and_look(PyBytes_AS_STRING(path), (int)flags, &found);
    Py_DECREF(path);
    if (descriptor < 0) {
        return descriptor == -2 ? NULL : Py_NewRef(Py_None);
    }
    theirs = S_ISREG(found.st_mode) && found.st_size <= most ? is_theirs(&found, args[3]) : 0;
    data = theirs == 1 ? read_all(descriptor, (Py_ssize_t)found.st_size, NULL) : NULL;
    close(descriptor);
    if (data == NULL) {
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    }
    return Py_BuildValue("Nd", data, (double)found.st_mtim.tv_sec + 1e-9 * (double)found.st_mtim.tv_nsec);
}

/* Whether a file is a regular one of this size and of these owners, and its bytes are in `room`, which has one more; -1 with an
 * exception. */
static int
read_one(PyObject *path, int flags, char *room, Py_ssize_t size, PyObject *owners)
{
    PyObject *encoded = NULL;
    struct stat found;
    Py_ssize_t done = -1;
    int descriptor, theirs;
    if (!PyUnicode_FSConverter(path, &encoded)) {
        return -1;
    }
    descriptor = open_and_look(PyBytes_AS_STRING(encoded), flags, &found);
    Py_DECREF(encoded);
    if (descriptor == -1) {
        PyErr_SetFromErrnoWithFilenameObject(PyExc_OSError, path);
    }
    if (descriptor < 0) {
        return -1;
    }
    theirs = S_ISREG(found.st_mode) && found.st_size == size ? is_theirs(&found, owners) : 0;
    if (theirs != 1) {
        close(descriptor);
        return theirs;
    }
    done = read_into(descriptor, room, size + 1, path);
    close(descriptor);
    return done < 0 ? -1 : done == size;
}

/* Of a tuple of names and sizes, whose sum is given. */
static PyObject *
read_each(PyObject *prefix, PyObject *files, int flags, PyObject *owners, Py_ssize_t total)
{
    Py_ssize_t at = 0;
    PyObject *data = PyBytes_FromStringAndSize(NULL, total + 1);
    for (Py_ssize_t i = 0; data != NULL && i < PyTuple_GET_SIZE(files); i++) {
        PyObject *file = PyTuple_GET_ITEM(files, i);
        Py_ssize_t size = PyLong_AsSsize_t(PyTuple_GET_ITEM(file, 1));
        PyObject *path = PyUnicode_Concat(prefix, PyTuple_GET_ITEM(file, 0));
        int right = path == NULL ? -1 : read_one(path, flags, PyBytes_AS_STRING(data) + at, size, owners);
        Py_XDECREF(path);
        if (right != 1) {
            Py_DECREF(data);
            return right < 0 ? NULL : Py_NewRef(Py_None);
        }
        at += size;
    }
    if (data != NULL) {
        _PyBytes_Resize(&data, total);
    }
    return data;
}

static PyObject *
read_files(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    Py_ssize_t total = 0;
    PyObject *files, *data = NULL;
    long flags;
    if (count != 4 || !PyUnicode_Check(args[0]) || !PyList_CheckExact(args[1]) || !PyFrozenSet_CheckExact(args[3])) {
        PyErr_SetString(PyExc_TypeError, "read_files takes a prefix, a list of names and sizes, flags and a frozenset");
        return NULL;
    }
    flags = PyLong_AsLong(args[2]);
    if (PyErr_Occurred()) {
        return NULL;
    }
    files = PyList_AsTuple(args[1]); /* another thread may change the list while this one reads */
    if (files == NULL) {
        return NULL;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(files); i++) {
        PyObject *name, *size_of, *file = PyTuple_GET_ITEM(files, i);
        Py_ssize_t size;
        if (!PyTuple_CheckExact(file) || !PyArg_ParseTuple(file, "UO!", &name, &PyLong_Type, &size_of)) {
            PyErr_SetString(PyExc_TypeError, "read_files takes tuples of a name and a size");
            goto end;
        }
        size = PyLong_AsSsize_t(size_of);
        if (size < 0 || size > PY_SSIZE_T_MAX / 2 - total) {
            PyErr_SetString(PyExc_ValueError, "the sizes must be 0 or more, and fit into memory");
            goto end;
        }
        total += size;
    }
    data = read_each(args[0], files, (int)flags, args[3], total);
end:
    Py_DECREF(files);
    return data;
}

static PyObject *
is_private_folder(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    PyObject *path = NULL;
    struct stat found;
    int looked, private;
    if (count != 2 || !PyFrozenSet_CheckExact(args[1])) {
        PyErr_SetString(PyExc_TypeError, "is_private_folder takes a path and a frozenset");
        return NULL;
    }
    if (!PyUnicode_FSConverter(args[0], &path)) {
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    looked = lstat(PyBytes_AS_STRING(path), &found);
    Py_END_ALLOW_THREADS
    Py_DECREF(path);
    private = looked == 0 && S_ISDIR(found.st_mode) ? is_theirs(&found, args[1]) : 0;
    return private < 0 ? NULL : PyBool_FromLong(private);
}

static PyMethodDef methods[] = {
    {"read_file", (PyCFunction)(void (*)(void))read_file, METH_FASTCALL,
     "read_file(path, flags, most): the file's bytes, and what it is"},
    {"read_trusted", (PyCFunction)(void (*)(void))read_trusted, METH_FASTCALL,
     "read_trusted(path, flags, most, owners): a file's bytes and its last change, or None"},
    {"read_files", (PyCFunction)(void (*)(void))read_files, METH_FASTCALL,
     "read_files(prefix, files, flags, owners): the bytes of files of these names, sizes and owners, or None"},
    {"is_private_folder", (PyCFunction)(void (*)(void))is_private_folder, METH_FASTCALL,
     "is_private_folder(path, owners): whether it is a folder that only these users can write to"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, .m_name = "kernelkeep._reading", .m_size = 0, .m_methods = methods,
};

PyMODINIT_FUNC
PyInit__reading(void)
{
    PyObject *made = PyModule_Create(&module);
#ifdef Py_GIL_DISABLED
    if (made != NULL)
        PyUnstable_Module_SetGIL(made, Py_MOD_GIL_NOT_USED); /* it has no state */
#endif
    return made;
}
