// Hopper's asynchronous matrix products and tile copies, as the PTX instructions behind them (sm_90a).

// --- barriers in shared memory that count arrivals and bytes

__device__ __forceinline__ unsigned shared_address(const void* p) { return (unsigned)__cvta_generic_to_shared(p); }

__device__ __forceinline__ void barrier_init(unsigned barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

__device__ __forceinline__ void barrier_expect(unsigned barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

__device__ __forceinline__ void barrier_arrive(unsigned barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void barrier_wait(unsigned barrier, unsigned parity) {
  asm volatile(
      "{\n.reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra ready;\n"
      "bra again;\n"
      "ready:\n}" ::"r"(barrier), "r"(parity)
      : "memory");
}

// --- tile copies from a matrix with rows of `pitch` bytes; what lies outside the matrix is zero in shared memory

// A group makes its own descriptors, so that a launch needs nothing but pointers and sizes. They must lie in global memory; as
// only one group fits on a multiprocessor, each multiprocessor has a place. Called by a whole warp; `scratch` is 128 bytes.
__device__ __forceinline__ void describe_matrix(
    void* descriptor, unsigned scratch, const void* matrix, int rows, int columns, long long pitch, int box_rows, int box_columns) {
  int lane = threadIdx.x % 32;
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(scratch + lane * 4), "r"(0) : "memory");
  __syncwarp();
  if (lane == 0) {
    // Rank 2 is written as 1; swizzle mode 3 is 128 bytes; no interleaving and zeros outside are 0.
    asm volatile("tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%0], %1;" ::"r"(scratch), "l"(matrix) : "memory");
    asm volatile("tensormap.replace.tile.rank.shared::cta.b1024.b32 [%0], 1;" ::"r"(scratch) : "memory");
    asm volatile("tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%0], 0, %1;" ::"r"(scratch), "r"(box_columns) : "memory");
    asm volatile("tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%0], 1, %1;" ::"r"(scratch), "r"(box_rows) : "memory");
    asm volatile("tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%0], 0, %1;" ::"r"(scratch), "r"(columns) : "memory");
    asm volatile("tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%0], 1, %1;" ::"r"(scratch), "r"(rows) : "memory");
#if __CUDACC_VER_MAJOR__ * 100 + __CUDACC_VER_MINOR__ < 1207
    pitch >>= 4;  // older assemblers take it in units of 16 bytes
#endif
    asm volatile("tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [%0], 0, %1;" ::"r"(scratch), "l"(pitch) : "memory");
    asm volatile("tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%0], 0, 1;" ::"r"(scratch) : "memory");
    asm volatile("tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%0], 1, 1;" ::"r"(scratch) : "memory");
    asm volatile("tensormap.replace.tile.elemtype.shared::cta.b1024.b32 [%0], " TENSOR_ELEMENT ";" ::"r"(scratch) : "memory");
    asm volatile("tensormap.replace.tile.swizzle_mode.shared::cta.b1024.b32 [%0], 3;" ::"r"(scratch) : "memory");
  }
  __syncwarp();
  asm volatile(
      "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%0], [%1], 128;" ::"l"(
          __cvta_generic_to_global(descriptor)),
      "r"(scratch)
      : "memory");
}

// Before the first copy with a descriptor that this launch wrote.
__device__ __forceinline__ void acquire_descriptor(const void* descriptor) {
  asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(descriptor) : "memory");
  // Some assemblers leave out a wait after this fence; an empty group of copies brings it.
  asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group.read 0;" ::: "memory");
}

__device__ __forceinline__ void copy_tile(unsigned to, const void* descriptor, unsigned barrier, int column, int row) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(to),
      "l"(descriptor), "r"(barrier), "r"(column), "r"(row)
      : "memory");
}

// --- matrix products of a warp group

// A tile in shared memory whose rows of 128 bytes are swizzled; `leading` and `stride` are distances in bytes.
__device__ __forceinline__ unsigned long long tile_descriptor(unsigned address, unsigned leading, unsigned stride) {
  return (unsigned long long)((address & 0x3ffff) >> 4) | (unsigned long long)(leading >> 4) << 16 |
         (unsigned long long)(stride >> 4) << 32 | 1ull << 62;
}

__device__ __forceinline__ void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void products_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int LEFT>
__device__ __forceinline__ void products_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}

#define SUMS8(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define SUMS32(i) SUMS8(i), SUMS8(i + 8), SUMS8(i + 16), SUMS8(i + 24)
#define NAMES32 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define NAMES64 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define NAMES128 \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, " \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, " \
  "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
// d (64 × N) = the left tile (64 × 16, along k) times the right one (16 × N, along n), plus d where `keep` is not 0.
template <int N>
__device__ __forceinline__ void multiply_halves(float (&d)[N / 2], unsigned long long left, unsigned long long right, int keep);

// d (64 × N) = 64 × 8 values in the registers of the warp group times a tile (N × 8, along k), plus d where `keep` is not 0.
template <int N>
__device__ __forceinline__ void multiply_tf32(float (&d)[N / 2], const unsigned* left, unsigned long long right, int keep);
#ifdef HALF_KIND
template <>
__device__ __forceinline__ void multiply_halves<64>(float (&d)[32], unsigned long long left, unsigned long long right, int keep) {
  asm volatile(
      "{\n.reg .pred keep;\nsetp.ne.b32 keep, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." HALF_KIND "." HALF_KIND " {" NAMES32 "}, %32, %33, keep, 1, 1, 0, 1;\n}"
      : SUMS32(0)
      : "l"(left), "l"(right), "r"(keep));
}
#else
template <>
__device__ __forceinline__ void multiply_tf32<64>(float (&d)[32], const unsigned* left, unsigned long long right, int keep) {
  asm volatile(
      "{\n.reg .pred keep;\nsetp.ne.b32 keep, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k8.f32.tf32.tf32 {" NAMES32 "}, {%32, %33, %34, %35}, %36, keep, 1, 1;\n}"
      : SUMS32(0)
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right), "r"(keep));
}
#endif
#ifdef HALF_KIND
template <>
__device__ __forceinline__ void multiply_halves<128>(float (&d)[64], unsigned long long left, unsigned long long right, int keep) {
  asm volatile(
      "{\n.reg .pred keep;\nsetp.ne.b32 keep, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32." HALF_KIND "." HALF_KIND " {" NAMES64 "}, %64, %65, keep, 1, 1, 0, 1;\n}"
      : SUMS32(0), SUMS32(32)
      : "l"(left), "l"(right), "r"(keep));
}
#else
template <>
__device__ __forceinline__ void multiply_tf32<128>(float (&d)[64], const unsigned* left, unsigned long long right, int keep) {
  asm volatile(
      "{\n.reg .pred keep;\nsetp.ne.b32 keep, %69, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k8.f32.tf32.tf32 {" NAMES64 "}, {%64, %65, %66, %67}, %68, keep, 1, 1;\n}"
      : SUMS32(0), SUMS32(32)
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right), "r"(keep));
}
#endif
#ifdef HALF_KIND
template <>
__device__ __forceinline__ void multiply_halves<256>(float (&d)[128], unsigned long long left, unsigned long long right, int keep) {
  asm volatile(
      "{\n.reg .pred keep;\nsetp.ne.b32 keep, %130, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n256k16.f32." HALF_KIND "." HALF_KIND " {" NAMES128 "}, %128, %129, keep, 1, 1, 0, 1;\n}"
      : SUMS32(0), SUMS32(32), SUMS32(64), SUMS32(96)
      : "l"(left), "l"(right), "r"(keep));
}
#else
template <>
__device__ __forceinline__ void multiply_tf32<256>(float (&d)[128], const unsigned* left, unsigned long long right, int keep) {
  asm volatile(
      "{\n.reg .pred keep;\nsetp.ne.b32 keep, %133, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n256k8.f32.tf32.tf32 {" NAMES128 "}, {%128, %129, %130, %131}, %132, keep, 1, 1;\n}"
      : SUMS32(0), SUMS32(32), SUMS32(64), SUMS32(96)
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "l"(right), "r"(keep));
}
#endif
