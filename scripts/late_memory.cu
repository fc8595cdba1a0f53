// What memcheck says of memory that is allocated while a kernel runs: nothing is wrong here.
//
//     nvcc -o late_memory scripts/late_memory.cu && compute-sanitizer ./late_memory early && compute-sanitizer ./late_memory late
//
// The kernel waits until the host gives it the address of an array, and writes to it. "early": the array was allocated before the
// launch. "late": while the kernel runs, which is all that differs.
#include <cstdio>
#include <cstring>

#define CHECK(call) do { cudaError_t e = (call); if (e != cudaSuccess) { printf("%s: %s\n", #call, cudaGetErrorString(e)); return 2; } } while (0)

__global__ void wait_and_write(int* volatile* where) {
    int* to = nullptr;
    for (long long i = 0; i < 200000000 && !(to = *where); i++) __nanosleep(100);
    if (to) to[5] = 7;
}

int main(int count, char** given) {
    const bool late = count > 1 && !strcmp(given[1], "late");
    int* volatile* where;
    int* array = nullptr;
    CHECK(cudaFree(nullptr));
    CHECK(cudaHostAlloc((void**)&where, sizeof *where, cudaHostAllocMapped));
    *where = nullptr;
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    if (!late) CHECK(cudaMalloc(&array, 4096));
    wait_and_write<<<1, 1, 0, stream>>>(where);
    CHECK(cudaGetLastError());
    if (late) CHECK(cudaMalloc(&array, 4096));
    *where = array;
    CHECK(cudaStreamSynchronize(stream));
    int found = 0;
    CHECK(cudaMemcpy(&found, array + 5, 4, cudaMemcpyDeviceToHost));
    printf("%s: %s\n", late ? "late" : "early", found == 7 ? "written" : "NOT WRITTEN");
    return found != 7;
}
