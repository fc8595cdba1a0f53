/* Calls functions of wgpu-native that end the process where they should return an error.
 *
 * wgpu-native is written in Rust, and panics when a device is found to be lost while work is submitted or waited for. Nothing
 * above it on the stack handles a panic, so Rust ends the process. A call through this module leaves the panic's search for a
 * handler by longjmp: the function never returns, and what its frames own is not released. That is some memory of a device that
 * cannot be used any more; wgpu-native holds no lock at that point, because it panics after its own work has returned the error.
 *
 *     call(address, a, b, c)      the function with three integers or pointers; False if it panicked, else True
 *
 * The search asks the personality of every frame on the stack. That of `call_through` is `leave`. Elsewhere than on 64-bit Linux
 * on x86 and ARM this file does not compile, and the functions are called without it.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <setjmp.h>
#include <stdint.h>
#include <unwind.h>

#if !defined(__linux__) || !(defined(__x86_64__) || defined(__aarch64__))
#error "only for 64-bit Linux on x86 and ARM"
#endif

typedef uintptr_t (*Function)(uintptr_t, uintptr_t, uintptr_t);

static _Thread_local jmp_buf *exit_point; /* of the innermost call */

__attribute__((used, visibility("hidden"))) _Unwind_Reason_Code
kernelkeep_leave(int version, _Unwind_Action actions, _Unwind_Exception_Class kind, struct _Unwind_Exception *exception,
                 struct _Unwind_Context *context)
{
    if ((actions & _UA_SEARCH_PHASE) && exit_point != NULL) {
        longjmp(*exit_point, 1);
    }
    return _URC_CONTINUE_UNWIND;
}

static __attribute__((noinline, noclone)) void
call_through(Function function, uintptr_t a, uintptr_t b, uintptr_t c)
{
    __asm__ volatile(".cfi_personality 0x1b, kernelkeep_leave");
    function(a, b, c);
    __asm__ volatile(""); /* no tail call: this frame must be on the stack */
}

static int
call_guarded(Function function, uintptr_t a, uintptr_t b, uintptr_t c)
{
    jmp_buf here, *volatile outer = exit_point;
    volatile int returned = 0;
    if (setjmp(here) == 0) {
        exit_point = &here;
        call_through(function, a, b, c);
        returned = 1;
    }
    exit_point = outer;
    return returned;
}

static PyObject *
call(PyObject *self, PyObject *const *args, Py_ssize_t count)
{
    uintptr_t given[4];
    int returned;
    if (count != 4) {
        PyErr_SetString(PyExc_TypeError, "call takes an address and three integers");
        return NULL;
    }
    for (int i = 0; i < 4; i++) {
        given[i] = (uintptr_t)PyLong_AsUnsignedLongLong(args[i]);
        if (PyErr_Occurred()) {
            return NULL;
        }
    }
    Py_BEGIN_ALLOW_THREADS
    returned = call_guarded((Function)given[0], given[1], given[2], given[3]);
    Py_END_ALLOW_THREADS
    return PyBool_FromLong(returned);
}

static PyMethodDef methods[] = {
    {"call", (PyCFunction)(void (*)(void))call, METH_FASTCALL, "call(address, a, b, c): False if the function panicked"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, .m_name = "kernelkeep._guard", .m_size = 0, .m_methods = methods,
};

PyMODINIT_FUNC
PyInit__guard(void)
{
    PyObject *made = PyModule_Create(&module);
#ifdef Py_GIL_DISABLED
    if (made != NULL)
        PyUnstable_Module_SetGIL(made, Py_MOD_GIL_NOT_USED); /* all state is a thread's own */
#endif
    return made;
}
