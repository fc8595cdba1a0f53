/* A Vulkan driver that passes everything on to another one, and loses the device when it is told to.
 *
 * `hang(1)`: nothing that was submitted ends any more, as far as anybody can see. `lose(1)`: every wait and every question says
 * VK_ERROR_DEVICE_LOST, `lose(2)`: every submission does. KK_DRIVER is the other driver's library.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NOT_READY = 1, DEVICE_LOST = -4 };
enum { IN_WAITS = 1, IN_SUBMISSIONS = 2 };

typedef void (*Function)(void);
typedef Function (*Lookup)(void *, const char *);

static volatile int lost, hanging, waiting;
static Lookup find_for_instance, find_for_device;
static int (*wait_for_fences)(void *, uint32_t, const void *, uint32_t, uint64_t);
static int (*get_fence_status)(void *, void *);
static int (*wait_semaphores)(void *, const void *, uint64_t);
static int (*get_counter_value)(void *, void *, uint64_t *);
static int (*queue_submit)(void *, uint32_t, const void *, void *);

void hang(int on) { hanging = on; }
void lose(int where) { lost = where; }
int count_waiting(void) { return waiting; }

static int is_lost_after_hanging(void)
{
    __sync_fetch_and_add(&waiting, 1);
    while (hanging && !lost) {
        usleep(1000);
    }
    __sync_fetch_and_sub(&waiting, 1);
    return lost & IN_WAITS;
}

static int my_wait_for_fences(void *device, uint32_t count, const void *fences, uint32_t all, uint64_t timeout)
{
    return is_lost_after_hanging() ? DEVICE_LOST : wait_for_fences(device, count, fences, all, timeout);
}

static int my_get_fence_status(void *device, void *fence)
{
    return lost & IN_WAITS ? DEVICE_LOST : hanging ? NOT_READY : get_fence_status(device, fence);
}

static int my_wait_semaphores(void *device, const void *info, uint64_t timeout)
{
    return is_lost_after_hanging() ? DEVICE_LOST : wait_semaphores(device, info, timeout);
}

static int my_get_counter_value(void *device, void *semaphore, uint64_t *value)
{
    if (lost & IN_WAITS) {
        return DEVICE_LOST;
    }
    int status = get_counter_value(device, semaphore, value);
    if (hanging) {
        *value = 0;
    }
    return status;
}

static int my_queue_submit(void *queue, uint32_t count, const void *submits, void *fence)
{
    return lost & IN_SUBMISSIONS ? DEVICE_LOST : queue_submit(queue, count, submits, fence);
}

static Function replaced(const char *name, Function found)
{
    struct { const char *name; Function *original; Function mine; } functions[] = {
        {"vkWaitForFences", (Function *)&wait_for_fences, (Function)my_wait_for_fences},
        {"vkGetFenceStatus", (Function *)&get_fence_status, (Function)my_get_fence_status},
        {"vkWaitSemaphores", (Function *)&wait_semaphores, (Function)my_wait_semaphores},
        {"vkWaitSemaphoresKHR", (Function *)&wait_semaphores, (Function)my_wait_semaphores},
        {"vkGetSemaphoreCounterValue", (Function *)&get_counter_value, (Function)my_get_counter_value},
        {"vkGetSemaphoreCounterValueKHR", (Function *)&get_counter_value, (Function)my_get_counter_value},
        {"vkQueueSubmit", (Function *)&queue_submit, (Function)my_queue_submit},
    };
    for (size_t i = 0; found != NULL && i < sizeof functions / sizeof *functions; i++) {
        if (strcmp(name, functions[i].name) == 0) {
            *functions[i].original = found;
            return functions[i].mine;
        }
    }
    return found;
}

static Function my_find_for_device(void *device, const char *name) { return replaced(name, find_for_device(device, name)); }

static void *other_driver(const char *symbol)
{
    static void *library;
    if (library == NULL) {
        library = dlopen(getenv("KK_DRIVER"), RTLD_NOW);
    }
    return library == NULL ? NULL : dlsym(library, symbol);
}

int vk_icdNegotiateLoaderICDInterfaceVersion(uint32_t *version)
{
    int (*negotiate)(uint32_t *) = (int (*)(uint32_t *))other_driver("vk_icdNegotiateLoaderICDInterfaceVersion");
    return negotiate == NULL ? -3 : negotiate(version);
}

Function vk_icdGetInstanceProcAddr(void *instance, const char *name)
{
    if (find_for_instance == NULL) {
        find_for_instance = (Lookup)other_driver("vk_icdGetInstanceProcAddr");
    }
    Function found = find_for_instance(instance, name);
    if (strcmp(name, "vkGetDeviceProcAddr") == 0) {
        find_for_device = (Lookup)found;
        return (Function)my_find_for_device;
    }
    return replaced(name, found);
}
