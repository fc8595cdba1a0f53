//kk: kernel gemm a:buffer:?:r b:buffer:?:r c:buffer:?:rw alpha:scalar:f4 beta:scalar:f4 m:scalar:i4 n:scalar:i4 k:scalar:i4
// C = alpha A B + beta C for matrices of 16-bit floats (half or bfloat16), row-major, with sums in float32.
// n and k are multiples of 8: rows begin at multiples of 16 bytes.
//
// A group computes 128 × BLOCK_N of C, tile after tile. One thread has pieces of A and B, 64 deep, copied to STAGES places in
// shared memory; two warp groups multiply what is there, 64 rows each.
//
// Where C has few tiles, SLICES groups share one, a cluster: each adds up a part along k, then each adds up the sums of all for its
// part of the tile. There the grid has a cluster for every tile.
#if BFLOAT
#define HALF_KIND "bf16"
#define TENSOR_ELEMENT "10"
#else
#define HALF_KIND "f16"
#define TENSOR_ELEMENT "6"
#endif
#include "half_results.h"
#include "clusters.h"
#include "hopper.h"
#include "tile_order.h"

#define BLOCK_M 128
#define DEPTH 64
#define A_BYTES (BLOCK_M * DEPTH * 2)
#define B_BYTES (BLOCK_N * DEPTH * 2)
#define STAGE_BYTES (A_BYTES + B_BYTES)
#define BOX_BYTES (64 * DEPTH * 2)  // of B: 64 columns
#define MULTIPROCESSORS 256
// Of a thread's sums, which are pairs of neighbours in every eight columns, in rows 8 apart: the i-th of 8 in a row of 32 columns.
#define PLACE(unit, i) (((unit) / 2 * 4 + (i) / 2) * 4 + (unit) % 2 * 2 + (i) % 2)

__device__ __align__(128) unsigned char descriptors[MULTIPROCESSORS][2][128];

extern "C" __global__ void __launch_bounds__(384, 1)
#if SLICES > 1
    __cluster_dims__(SLICES, 1, 1)
#endif
    gemm(const unsigned short* a, const unsigned short* b, unsigned short* c, float alpha, float beta, int m, int n, int k) {
  extern __shared__ unsigned char memory[];
  __shared__ __align__(8) unsigned long long barriers[2 * STAGES];
  __shared__ __align__(128) unsigned char scratch[2][128];
  unsigned tiles = (shared_address(memory) + 1023) & ~1023u;
#if SLICES > 1
  unsigned char* bytes = memory + (tiles - shared_address(memory));
#endif
  unsigned full = shared_address(barriers), empty = full + 8 * STAGES;
  int slice = blockIdx.x % SLICES;
  long long all_steps = (k + DEPTH - 1) / DEPTH;
  int first_step = (int)(all_steps * slice / SLICES), steps = (int)(all_steps * (slice + 1) / SLICES) - first_step;
  int across = (n + BLOCK_N - 1) / BLOCK_N;
  int down = (m + BLOCK_M - 1) / BLOCK_M;
  int turns = across * down;

  unsigned here;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(here));
  if (here >= MULTIPROCESSORS) __trap();
  unsigned char* a_map = descriptors[here][0];
  unsigned char* b_map = descriptors[here][1];
  // Three warps begin at the same time.
  if (threadIdx.x < 32) {
    describe_matrix(a_map, shared_address(scratch[0]), a, m, k, 2ll * k, BLOCK_M, DEPTH);
  } else if (threadIdx.x < 64) {
    describe_matrix(b_map, shared_address(scratch[1]), b, k, n, 2ll * n, DEPTH, 64);
  } else if (threadIdx.x == 64) {
    for (int i = 0; i < STAGES; i++) {
      barrier_init(full + 8 * i, 1);
      barrier_init(empty + 8 * i, 8);
    }
    asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async;" ::: "memory");
  }
  __syncthreads();

  if (threadIdx.x < 128) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x == 0) {
      acquire_descriptor(a_map);
      acquire_descriptor(b_map);
      int stage = 0, parity = 1;
      for (int turn = blockIdx.x / SLICES; turn < turns; turn += gridDim.x / SLICES) {
        Place at = place_of(turn, down, across);
        int row = at.row * BLOCK_M, column = at.column * BLOCK_N;
        for (int step = 0; step < steps; step++) {
          barrier_wait(empty + 8 * stage, parity);
          unsigned to = tiles + stage * STAGE_BYTES;
          barrier_expect(full + 8 * stage, STAGE_BYTES);
          copy_tile(to, a_map, full + 8 * stage, (first_step + step) * DEPTH, row);
#pragma unroll
          for (int box = 0; box < BLOCK_N / 64; box++)
            copy_tile(to + A_BYTES + box * BOX_BYTES, b_map, full + 8 * stage, column + box * 64, (first_step + step) * DEPTH);
          if (++stage == STAGES) stage = 0, parity ^= 1;
        }
      }
    }
#if SLICES > 1
    cluster_sync();
    cluster_sync();
#endif
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    int warp_group = threadIdx.x / 128 - 1, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
    int stage = 0, parity = 0;
    float sums[BLOCK_N / 2];
    for (int turn = blockIdx.x / SLICES; turn < turns; turn += gridDim.x / SLICES) {
      Place at = place_of(turn, down, across);
      int before = 0;
#if SLICES > 1
#pragma unroll
      for (int i = 0; i < BLOCK_N / 2; i++) sums[i] = 0.0f;  // a slice may have no steps
#endif
      for (int step = 0; step < steps; step++) {
        barrier_wait(full + 8 * stage, parity);
        unsigned from = tiles + stage * STAGE_BYTES;
        products_begin();
#pragma unroll
        for (int d = 0; d < DEPTH / 16; d++) {
          unsigned long long left = tile_descriptor(from + warp_group * 64 * 128 + d * 32, 16, 1024);
          unsigned long long right = tile_descriptor(from + A_BYTES + d * 16 * 128, BOX_BYTES, 1024);
          multiply_halves<BLOCK_N>(sums, left, right, step | d);
        }
        products_commit();
        products_wait<1>();  // those of the step before are done
        if (step > 0 && lane == 0) barrier_arrive(empty + 8 * before);
        before = stage;
        if (++stage == STAGES) stage = 0, parity ^= 1;
      }
      products_wait<0>();
      if (steps > 0 && lane == 0) barrier_arrive(empty + 8 * before);

      int first = at.row * BLOCK_M + warp_group * 64 + warp * 16 + lane / 4;
#if SLICES == 1
#pragma unroll
      for (int unit = 0; unit < BLOCK_N / 16; unit++) {
        float values[8];
#pragma unroll
        for (int i = 0; i < 8; i++) values[i] = sums[PLACE(unit, i)];
        write_eight(c, values, alpha, beta, first + unit % 2 * 8, at.column * BLOCK_N + unit / 2 * 32, m, n);
      }
#else
      // The pieces are used up, by both warp groups: their memory takes the sums.
      asm volatile("bar.sync 1, 256;" ::: "memory");
      int me = threadIdx.x - 128;
#pragma unroll
      for (int i = 0; i < BLOCK_N / 2; i++) ((float*)bytes)[i * 256 + me] = sums[i];
      cluster_sync();
      for (int e = 0; e < BLOCK_N / 16 / SLICES; e++) {
        int unit = slice * (BLOCK_N / 16 / SLICES) + e;
        float values[8];
#pragma unroll
        for (int i = 0; i < 8; i++) {
          values[i] = 0.0f;
#pragma unroll
          for (int other = 0; other < SLICES; other++) values[i] += read_from_cluster(tiles + (PLACE(unit, i) * 256 + me) * 4, other);
        }
        write_eight(c, values, alpha, beta, first + unit % 2 * 8, at.column * BLOCK_N + unit / 2 * 32, m, n);
      }
      cluster_sync();  // others may still read here
#endif
    }
  }
}
