// A grid that stays: every block takes tasks from a ring of its own in host memory, and tells the host what it has done.
//
// A block has KK_THREADS workers, which run tasks, and two more warps. The reader looks whether the host has submitted
// something and fetches it into shared memory; the writer tells the host what is done, and that the block lives. So both go on
// while a task runs. `resident/protocol.py` describes the ring; what blocks share is in `kk_Grid`.
//
// Each hand-over from one warp to another takes time. So where the host sends one task and waits for it, the first warp of the
// workers does all three things: it looks for the task, and tells the host that it is done. `kk_Block.looks` says who looks.
//
// Blocks work together in two ways. A wide task is run by all of them at once: the block that has it calls the others, and
// waits until all have run their part. A graph belongs to the block that was asked to run it; blocks that have nothing else to do
// help: they join, take chains of nodes that are ready, and leave when it ends or when they get tasks of their own. Whoever waits
// for another block answers calls meanwhile, and calls come before a block's own tasks, so waits never form a circle.

typedef unsigned int kk_u32;
typedef unsigned long long kk_u64;

#define KK_LINE 128
#define KK_ALL 0xffffffffu
#define KK_NONE 0xffffffffu
#define KK_WORKERS_BARRIER 1
#define KK_ALL_THREADS (KK_THREADS + 64)
#define KK_PUBLISHER (KK_THREADS - 1)  // the worker that says how far they are: of the last warp, since small tasks use the first
#define KK_COMMAND_EXIT 1
#define KK_BEAT_NANOSECONDS 1000000
#define KK_RESULTS_AT (KK_LINE * (1ull + 2 * gridDim.x))
#define KK_SLOTS_AT (KK_RESULTS_AT + (kk_u64)gridDim.x * KK_CAPACITY * 16)
#define KK_WIDE 0x80000000u  // in the task number of a record: for all blocks
#define KK_GRAPH 0xffffffffu  // a task number: run a graph
#define KK_TRACED_WIDE 1
#define KK_IN_GRAPH 2  // in traces only
#define KK_PART 4

// --- memory that others write

static __device__ inline kk_u64 kk_look_system(const kk_u64* p) {
    kk_u64 v;
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
}
static __device__ inline void kk_tell_system(kk_u64* p, kk_u64 v) {
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}
static __device__ inline kk_u64 kk_acquire_system(const kk_u64* p) {
    kk_u64 v;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
}
static __device__ inline void kk_release_system(kk_u64* p, kk_u64 v) {
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}
static __device__ inline void kk_fence_system() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }
static __device__ inline kk_u32 kk_look(const kk_u32* p) {
    kk_u32 v;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
    return v;
}
static __device__ inline kk_u64 kk_look(const kk_u64* p) {
    kk_u64 v;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
    return v;
}
static __device__ inline void kk_tell(kk_u32* p, kk_u32 v) {
    asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
static __device__ inline void kk_tell(kk_u64* p, kk_u64 v) {
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}
static __device__ inline void kk_fence_grid() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }
// Words in shared memory. To acquire costs nothing, to release waits for what this thread wrote.
static __device__ inline kk_u32 kk_acquire_block(const volatile kk_u32* p) {
    kk_u32 v;
    asm volatile("ld.acquire.cta.shared.u32 %0, [%1];" : "=r"(v) : "r"((kk_u32)__cvta_generic_to_shared((const void*)p)) : "memory");
    return v;
}
static __device__ inline kk_u64 kk_acquire_block(const volatile kk_u64* p) {
    kk_u64 v;
    asm volatile("ld.acquire.cta.shared.u64 %0, [%1];" : "=l"(v) : "r"((kk_u32)__cvta_generic_to_shared((const void*)p)) : "memory");
    return v;
}
static __device__ inline void kk_release_block(volatile kk_u32* p, kk_u32 v) {
    asm volatile("st.release.cta.shared.u32 [%0], %1;" ::"r"((kk_u32)__cvta_generic_to_shared((void*)p)), "r"(v) : "memory");
}
static __device__ inline void kk_release_block(volatile kk_u64* p, kk_u64 v) {
    asm volatile("st.release.cta.shared.u64 [%0], %1;" ::"r"((kk_u32)__cvta_generic_to_shared((void*)p)), "l"(v) : "memory");
}
// Bells in shared memory: a thread that waits for one sleeps, and does not keep the others from their memory by looking all the
// time. To toll releases, as `kk_release_block` does, but does not wait: a fence takes longer than a small task. To be rung awake
// acquires. A bell has two phases: who waits says how often it was tolled before, odd or even. Devices before sm_90 have none.
#define KK_HAS_BELLS (__CUDA_ARCH__ >= 900)
static __device__ inline void kk_make_bell(kk_u64* bell) {
#if KK_HAS_BELLS
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"((kk_u32)__cvta_generic_to_shared(bell)) : "memory");
#endif
}
static __device__ inline void kk_toll_at(kk_u32 place) {
#if KK_HAS_BELLS
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(place) : "memory");
#endif
}
static __device__ inline void kk_toll(kk_u64* bell) { kk_toll_at((kk_u32)__cvta_generic_to_shared(bell)); }
// Whether the bell was tolled; waits for that, at most about so long.
static __device__ inline bool kk_sleep_at(kk_u64* bell, kk_u32 phase, kk_u32 nanoseconds) {
#if KK_HAS_BELLS
    kk_u32 rung;
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2, %3; selp.u32 %0, 1, 0, p; }" : "=r"(rung) : "r"((kk_u32)__cvta_generic_to_shared(bell)), "r"(phase), "r"(nanoseconds) : "memory");
    return rung;
#else
    __nanosleep(20);
    return false;
#endif
}
static __device__ inline bool kk_was_tolled(kk_u64* bell, kk_u32 phase) {
#if KK_HAS_BELLS
    kk_u32 rung;
    asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }" : "=r"(rung) : "r"((kk_u32)__cvta_generic_to_shared(bell)), "r"(phase) : "memory");
    return rung;
#else
    return true;
#endif
}
// A place in shared memory that stays in a register: to find it again takes as long as to read it.
static __device__ inline kk_u32 kk_place(const volatile void* p) {
    kk_u32 place = (kk_u32)__cvta_generic_to_shared((const void*)p);
    asm volatile("" : "+r"(place));
    return place;
}
static __device__ inline uint2 kk_look_at(kk_u32 place) {
    uint2 v;
    asm volatile("ld.volatile.shared.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(place) : "memory");
    return v;
}
static __device__ inline void kk_tell_at(kk_u32 place, kk_u32 v) { asm volatile("st.volatile.shared.u32 [%0], %1;" ::"r"(place), "r"(v) : "memory"); }
static __device__ inline void kk_release_at(kk_u32 place, kk_u32 v) { asm volatile("st.release.cta.shared.u32 [%0], %1;" ::"r"(place), "r"(v) : "memory"); }
static __device__ inline void kk_fence_block() { asm volatile("fence.acq_rel.cta;" ::: "memory"); }
static __device__ inline uint4 kk_fetch(const uint4* p) {
    uint4 v;
    asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p) : "memory");
    return v;
}
// Copy 16 bytes to shared memory, and go on meanwhile. Devices before sm_80 wait.
static __device__ inline void kk_copy_ahead(void* to, const void* p) {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((kk_u32)__cvta_generic_to_shared(to)), "l"(p) : "memory");
#else
    *(uint4*)to = kk_fetch((const uint4*)p);
#endif
}
static __device__ inline void kk_wait_for_copies() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}
static __device__ inline kk_u64 kk_nanoseconds() {
    kk_u64 v;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(v));
    return v;
}
static __device__ inline kk_u64 kk_trace_time() {
#if KK_TIMELINE
    return threadIdx.x == 0 ? kk_nanoseconds() : 0;
#else
    return 0;
#endif
}
// As `__syncthreads`, for the workers. The barrier is for whole warps, and counts one that is there in part as if all of it were: a
// task that some threads leave early brings such. The intrinsic that allows for parts is a third slower. One warp needs no barrier.
static __device__ inline void kk_workers_meet() {
    __syncwarp();
    if (KK_THREADS > 32) asm volatile("bar.sync %0, %1;" ::"n"(KK_WORKERS_BARRIER), "n"(KK_THREADS) : "memory");
}
static __device__ inline kk_u32 kk_cycles() {
    kk_u32 v;
    asm volatile("mov.u32 %0, %clock;" : "=r"(v));
    return v;
}

// --- what blocks share, in device memory; the host sets it to 0 before each start

struct __align__(KK_LINE) kk_Line32 {
    kk_u32 value;
};
struct __align__(KK_LINE) kk_Line64 {
    kk_u64 value;
};
// A graph that is run, offered to blocks that have nothing to do.
struct __align__(KK_LINE) kk_Run {
    kk_u64 state;  // offers ever << 32 | open << 31 | most helpers << 16 | helpers
    kk_Line64 graph;  // its address
    kk_Line32 lock;  // held by the block that offers it
};
#define KK_RUN_OPEN 0x80000000ull
#define KK_RUNS 8
#define KK_MOST_HELPERS 0x7fffu
static __device__ inline bool kk_wants_help(kk_u64 state) {
    return (state & KK_RUN_OPEN) && (state & 0xffff) < (state >> 16 & KK_MOST_HELPERS);
}

struct kk_Grid {
    kk_Line32 wide_lock;  // held by the block that calls the others
    kk_Line32 wide_calls;  // calls ever
    kk_Line32 wide_parts;  // parts of this call that were run, without the caller's
    kk_Line32 leaving;  // blocks that take no more tasks
    kk_Line32 offers;  // of graphs, ever
    kk_Run runs[KK_RUNS];
    __align__(KK_LINE) uint4 wide_record[KK_SLOT / 16];
    kk_u64 wide_result;
};
static_assert(sizeof(kk_Grid) <= 16384, "resident/grid.py has fewer bytes for it");

// A graph in device memory, as resident/graph_layout.py lays it out. Behind the head lie its chains, the chains that wait for each
// of them, a queue of chains that are ready, and the results of the nodes. A chain is a head and the records of nodes that follow
// one another: one block runs it, and only its last node is waited for by others. Chains are named by where they are: by
// their distance from the graph's head, in pieces of 16 bytes. Between two runs all counters and the queue are 0.
struct kk_Graph {
    kk_u64 successors;  // distances from here, in bytes
    kk_u64 queue;
    kk_u64 results;
    kk_u32 chains;
    kk_u32 roots;  // the first of the successors: chains that wait for nothing
    kk_u32 ends;  // chains that nothing waits for
    kk_u32 helpers;  // how many blocks can have something to do, besides the first
    kk_u32 number;  // for diagnosis
    kk_Line32 lock;  // held by the block that runs it
    kk_Line64 tickets;  // chains queued << 32 | tickets given: the holder of ticket k gets the chain queued as the k-th
    kk_Line32 ended;  // of those that nothing waits for
};
struct kk_Chain {
    kk_u32 length;
    kk_u32 node;  // the number of the first node
    kk_u32 first;  // of its successors
    kk_u32 successors;
    kk_u32 arrived;  // chains it waits for that were run
    kk_u32 unused[3];
    // the records follow
};
static_assert(sizeof(kk_Graph) == 512 && sizeof(kk_Chain) == 32, "resident/graph_layout.py writes them so");
#define KK_CHUNK (2048 / KK_SLOT)  // records of a chain that are fetched at once; graph_layout.py lets a block read so far

// --- what a block shares

__shared__ kk_u32 kk_block_x, kk_blocks_x;  // the position of this block in the task: 0 of 1, or its place in the grid
#define kk_block_y 0u
#define kk_block_z 0u
#define kk_blocks_y 1u
#define kk_blocks_z 1u
#define kk_threads_x (kk_u32)KK_THREADS
#define kk_threads_y 1u
#define kk_threads_z 1u

#define KK_WANTED 0x7fffffffu
// What workers look at while they run tasks one after the other: whether somebody wants something, and behind which task they stop.
struct __align__(8) kk_Watch {
    volatile kk_u32 wanted;  // the reader's: 0 or KK_WANTED
    volatile kk_u32 stop;  // the publisher's
};

struct kk_Block {
    __align__(16) unsigned char records[KK_HELD * KK_SLOT];
    __align__(16) unsigned char chunk[2][KK_CHUNK * KK_SLOT];
    __align__(16) kk_Chain chain;
    __align__(16) unsigned char call[KK_SLOT];  // the record of another block's call
    kk_u64 results[KK_HELD];
    volatile kk_u64 ready;  // tasks fetched ever: the reader's
    volatile kk_u32 done;  // tasks run ever, modulo 2^32: the workers'. What the last one wrote is there when its bell was tolled
    volatile kk_u64 told;  // tasks told to the host: the writer's
    volatile kk_u32 wide_calls;  // seen by the reader
    volatile kk_u32 busy;  // with what others asked for: the workers'
    kk_u64 work_bell;  // for the first worker
    kk_u64 bells[KK_HELD];  // one for each record, tolled when its task was run: for the writer
    kk_u64 unheard;  // a bell that nobody waits for
    kk_Watch watch[3];  // by as what tasks are run: KK_AS_ONE …
    kk_u32 unread;  // where those say how far they are that need not
    __align__(8) volatile unsigned char offered[KK_RUNS];  // graphs that want help: the reader's
    volatile kk_u64 in_node;  // number of the graph << 32 | number of the node + 1, while one runs: the workers'
    volatile kk_u32 leave;  // the host wants the grid to end: the reader's
    volatile kk_u32 ended;  // and published all: the workers'
    kk_u32 looks;  // who reads the ring: KK_READER …
    // the first worker's, for the others
    int todo, turn;  // `turn` is read while the first worker may be in a wide task already, which changes `todo`
    kk_u32 count, goes_on, run, next, pace;
    volatile kk_u32 seen_wide;
    kk_u64 graph;
    unsigned char* traces;  // of this block
    kk_u64 traced;  // entries ever
};
__shared__ kk_Block kk_block;  // not behind a reference: a function that is called would not know in which memory it is

// How long the first look behind a task waits for the next one, and since when, in cycles: `look`.
struct kk_Rest {
    kk_u32 cycles, since;
};
#define KK_REST_LESS 4u
#define KK_REST_MORE 60u
#define KK_REST_MOST 3000u  // a look over the bus

#define KK_TODO_TASKS 0
#define KK_TODO_WIDE 1
#define KK_TODO_JOIN 2
#define KK_TODO_END 3
#define KK_TODO_ONE 4  // a task that the first warp has read, and tells the host
#define KK_TODO_LOOK 5  // of the first warp only
// Who looks whether the host has submitted something, and so fetches it and sets `ready`.
#define KK_READER 0u  // the reader
#define KK_ASKED 1u  // the reader; the workers have nothing to do, and would
#define KK_WORKERS 2u  // the workers' first warp
#define KK_RUNNING 3u  // nobody, because the workers run what they found; if that takes long, the reader goes on

// Which word a thread of a warp looks at. The first 16: those of the host's line, which are the head, the command, and the copy of
// the newest record. The next: graphs that want help; blocks begin with different ones. The last: the calls of other blocks.
#define KK_CALLS_LANE (16 + KK_RUNS)
#define KK_COPY_WORDS (KK_SLOT / 4 < 14 ? KK_SLOT / 4 : 14)
static __device__ inline const kk_u64* kk_word_of(kk_u32 lane, const unsigned char* ring, kk_Grid& grid) {
    const kk_u32 run = (lane - 16 + blockIdx.x) % KK_RUNS;  // as `find_offer` has it
    if (lane == KK_CALLS_LANE) return (const kk_u64*)&grid.wide_calls;
    return lane < 16 ? (const kk_u64*)(ring + KK_LINE * (1 + 2 * blockIdx.x)) + lane : &grid.runs[run].state;
}
// The result of a task, in two words that say each whose it is.
static __device__ inline void kk_write_result(unsigned char* ring, kk_u64 number, kk_u64 value) {
    kk_u64* words = (kk_u64*)(ring + KK_RESULTS_AT + (kk_u64)blockIdx.x * KK_CAPACITY * 16) + number % KK_CAPACITY * 2;
    const kk_u64 tag = (number + 1) << 32;
    asm volatile("st.volatile.global.v2.u64 [%0], {%1, %2};" ::"l"(words), "l"(tag | (kk_u32)value), "l"(tag | value >> 32) : "memory");
}
static __device__ inline bool kk_in_copy(kk_u32 lane) { return lane >= 2 && lane < 2 + KK_COPY_WORDS; }
// Whether the word that a thread saw says that the copy is the record behind `ready`, and that the grid goes on.
static __device__ inline bool kk_fits(kk_u32 lane, kk_u64 seen, kk_u64 ready) {
    return kk_in_copy(lane) ? (kk_u32)(seen >> 32) == (kk_u32)ready + 1u : lane != 1 || seen != KK_COMMAND_EXIT;
}
static __device__ inline void kk_keep_copy(kk_u32 lane, kk_u64 seen, kk_u64 ready) {
    if (kk_in_copy(lane)) ((kk_u32*)(kk_block.records + ready % KK_HELD * KK_SLOT))[lane - 2] = (kk_u32)seen;
}

// Remember when something ran. The first worker.
static __device__ inline void kk_trace(kk_u64 begun, kk_u32 task, kk_u32 what, kk_u64 number) {
#if KK_TIMELINE
    if (threadIdx.x == 0) {
        ulonglong4* entry = (ulonglong4*)(kk_block.traces + KK_LINE) + kk_block.traced % KK_TIMELINE;
        *entry = make_ulonglong4(begun, kk_trace_time(), (kk_u64)what << 32 | task, number);
        *(volatile kk_u64*)kk_block.traces = ++kk_block.traced;
    }
#endif
}

// (tasks)

// --- tasks one after the other

// As what tasks are run.
#define KK_AS_ONE 0u  // the caller says so when it is done
#define KK_AS_TASKS 1u  // of the ring: somebody wants something where the host wants the grid to end, or a block calls
#define KK_AS_NODES KK_IN_GRAPH  // of a graph: a block calls
#define KK_STOPPED 0x80000000u
#define KK_STOP 0xfffffffeu  // where a task's number is expected: there is no other
#define KK_SHORT 4000u  // cycles: shorter tasks run many at a time, see `pace`
// A small record is read before the task before it runs, and is then in registers. Of others the number is.
#define KK_AHEAD (KK_SLOT <= 32)
struct kk_Record {
    uint4 pieces[KK_AHEAD ? KK_SLOT / 16 : 1];
};
static __device__ inline kk_Record kk_read_record(const unsigned char* p) {
    kk_Record record;
    const kk_u32 place = (kk_u32)__cvta_generic_to_shared(p);
    if (!KK_AHEAD) {
        asm volatile("ld.volatile.shared.u32 %0, [%1];" : "=r"(record.pieces[0].x) : "r"(place) : "memory");
        return record;
    }
#pragma unroll
    for (kk_u32 i = 0; i < sizeof(record) / 16; i++) {
        uint4& v = record.pieces[i];
        asm volatile("ld.volatile.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(place + 16 * i) : "memory");
    }
    return record;
}

// The bell of a task, and its phase before that task. A task is told before one is fetched that has the same bell, so the writer
// finds no bell more than one phase ahead. `tests/unit/resident/test_bells_model.py` has this, and the order of the stores, as a model.
static __device__ inline kk_u64* kk_bell_of(kk_u64 task) { return &kk_block.bells[task % KK_HELD]; }
static __device__ inline kk_u32 kk_phase_of(kk_u64 task) { return task / KK_HELD & 1; }

// Run tasks whose records lie in `kk_block` from `at` on, one or more. All workers. Ends before one that is not for this block alone,
// or when somebody wants something: then KK_STOPPED is in the result, which is how many were run. Not inlined, so that tasks are
// compiled once, or a few times where they are short: KK_COPIES, since a jump back takes as long as ten instructions. Everything in
// here takes as long as a small task does, so what can be known while a task runs is looked up then: the next record, whether it is
// the last, and whether to stop.
//
// All workers must stop behind the same task, and none waits to hear of it. So the publisher alone decides: one that sees at the end
// of a task that somebody wants something says, before all meet, that they stop behind the next. All have read that before they
// end the next. It does not change its mind in the task in which they stop, so it does not matter who reads it early.
static __device__ __noinline__ kk_u32 kk_run_records(kk_u32 at, kk_u32 count, kk_u32 as, kk_u32 number, kk_u64* results KK_ARRAYS_DECLARE) {
    KK_ARRAYS_KNOWN
    const unsigned char* record = (const unsigned char*)&kk_block + at;
    const kk_u32 watch = kk_place(&kk_block.watch[as]);
    const kk_u32 progress = kk_place(as == KK_AS_ONE ? &kk_block.unread : as == KK_AS_TASKS ? &kk_block.done : (volatile kk_u32*)&kk_block.in_node);
    const kk_u32 bell_bytes = as == KK_AS_TASKS ? 8 : 0;
    kk_u32 bell = kk_place(as == KK_AS_TASKS ? kk_bell_of(number) : &kk_block.unheard);
    if (threadIdx.x >= KK_THREADS) return 0;  // never so; but the compiler would read the thread's number again for each task
    const bool publishes = threadIdx.x == KK_PUBLISHER;
    kk_u32 task = *(const kk_u32*)record & (as == KK_AS_ONE ? ~KK_WIDE : ~0u), i = 0;
    bool stops = false;
    [[maybe_unused]] kk_Record here = kk_read_record(record);
    if (task >= KK_TASKS) return 0;
#pragma unroll KK_COPIES
    do {
        const uint2 seen = kk_look_at(watch);
        [[maybe_unused]] const kk_u32 what = task;
        [[maybe_unused]] const unsigned char* current = record;
        kk_u64* result = results + i;
        number++;
        i++;
        const bool ends = i == count;
        if (!ends) record += KK_SLOT;
        const kk_Record next = kk_read_record(record);
        const kk_u64 begun = kk_trace_time();
        kk_run_task(task, KK_AHEAD ? (const unsigned char*)&here : current, result KK_ARRAYS_PASS);
        here = next;
        stops = seen.y == number;
        // Compared with what is known now only, or the compiler would do it before the task, and wait for what was seen.
        if (publishes && seen.x > i && !stops) kk_tell_at(watch + 4, number + 1);
        kk_workers_meet();
        if (publishes) {  // of a node, only where the block is
#if KK_HAS_BELLS
            kk_toll_at(bell);
            kk_tell_at(progress, number);
#else
            kk_release_at(progress, number);
#endif
        }
        bell += bell_bytes;
        kk_trace(begun, what, as & KK_IN_GRAPH, as == KK_AS_NODES ? number - 2u : number);
        task = stops || ends ? KK_STOP : here.pieces[0].x;
    } while (task < KK_TASKS);
    return task == KK_STOP && stops ? i | KK_STOPPED : i;
}

struct kk_Resident {
    kk_Grid& grid;
    unsigned char* ring;
    KK_ARRAYS_STRUCT

    __device__ __forceinline__ kk_u32 run_records(const unsigned char* from, kk_u32 count, kk_u32 as, kk_u32 number, kk_u64* results) {
        return kk_run_records((kk_u32)(from - (const unsigned char*)&kk_block), count, as, number, results KK_ARRAYS_PASS);
    }

    // How many tasks to run at once behind the last ones: 0 if somebody wants something, 1 while tasks take long, so that nobody waits
    // for more than the one that runs. Where they are short, all there are: one that takes long all of a sudden holds up others
    // for two tasks. All workers.
    __device__ kk_u32 pace(kk_u32 as, kk_u32 ran, kk_u32 since) {
        if (threadIdx.x == 0) kk_block.pace = kk_block.watch[as].wanted ? 0 : kk_cycles() - since < ran * KK_SHORT ? KK_HELD : 1;
        kk_workers_meet();
        return kk_block.pace;  // does not change before they meet again
    }

    // --- wide tasks

    // Run this block's part of a call. All workers.
    __device__ __noinline__ void answer() {
        for (kk_u32 i = threadIdx.x; i < KK_SLOT / 16; i += KK_THREADS) ((uint4*)kk_block.call)[i] = kk_fetch(&grid.wide_record[i]);
        kk_workers_meet();
        const kk_u64 begun = kk_trace_time();
        run_wide_part(kk_block.call);
        kk_trace(begun, *(const kk_u32*)kk_block.call, KK_TRACED_WIDE | KK_PART, 0);
        if (threadIdx.x == 0) {
            kk_fence_grid();
            atomicAdd(&grid.wide_parts.value, 1u);
        }
    }

    __device__ void run_wide_part(const unsigned char* record) {
        if (threadIdx.x == 0) {
            kk_block_x = blockIdx.x;
            kk_blocks_x = gridDim.x;
        }
        kk_workers_meet();
        run_records(record, 1, KK_AS_ONE, 0, &grid.wide_result);
        if (threadIdx.x == 0) {
            kk_block_x = 0;
            kk_blocks_x = 1;
        }
        kk_workers_meet();
    }

    // Whether another block has called since. The first worker.
    __device__ bool is_called() {
        const kk_u32 calls = kk_look(&grid.wide_calls.value);
        if (calls == kk_block.seen_wide) return false;
        kk_block.seen_wide = calls;
        kk_fence_grid();
        return true;
    }

    // Whether it has called as far as the reader knows, which sees it somewhat later. The first worker.
    __device__ bool may_be_called() { return (int)(kk_block.wide_calls - kk_block.seen_wide) > 0; }

    // Wait until something is so, and answer calls meanwhile. All workers; the first one looks.
    template <class F>
    __device__ void wait_until(F is_so) {
        for (;;) {
            if (threadIdx.x == 0) {
                bool called = false;
                while (!(called = is_called()) && !is_so()) __nanosleep(40);
                kk_fence_grid();
                kk_block.todo = called ? KK_TODO_WIDE : KK_TODO_TASKS;
            }
            kk_workers_meet();
            const bool called = kk_block.todo == KK_TODO_WIDE;
            kk_workers_meet();
            if (!called) return;
            answer();
        }
    }

    __device__ void take(kk_u32* lock) {
        wait_until([lock] { return kk_look(lock) == 0u && atomicCAS(lock, 0u, 1u) == 0u; });
    }

    // Run a task with all blocks. All workers.
    __device__ __noinline__ void call_all(const unsigned char* record, kk_u64* result) {
        take(&grid.wide_lock.value);
        for (kk_u32 i = threadIdx.x; i < KK_SLOT / 16; i += KK_THREADS) grid.wide_record[i] = ((const uint4*)record)[i];
        kk_workers_meet();
        if (threadIdx.x == 0) {
            kk_tell(&grid.wide_result, 0ull);
            kk_tell(&grid.wide_parts.value, 0u);
            kk_fence_grid();
            kk_block.seen_wide = kk_look(&grid.wide_calls.value) + 1u;
            kk_tell(&grid.wide_calls.value, kk_block.seen_wide);
        }
        run_wide_part(record);
        if (threadIdx.x == 0) {
            while (kk_look(&grid.wide_parts.value) != gridDim.x - 1) __nanosleep(20);
            kk_fence_grid();
            *result = kk_look(&grid.wide_result);
            kk_fence_grid();  // before another block's call
            kk_tell(&grid.wide_lock.value, 0u);
        }
        kk_workers_meet();
    }

    // --- graphs

    // Whether the block has tasks of its own to run. The first worker.
    __device__ bool has_tasks(kk_u64 done) { return kk_block.ready != done && !kk_block.leave; }

    // Run the nodes of a chain one after the other. All workers; each gets one of the chain's successors, for `signal`.
    __device__ kk_u64 run_chain(const kk_Graph* graph, kk_u32 chain) {
        const unsigned char* from = (const unsigned char*)graph + chain * 16ull;
        const unsigned char* records = from + sizeof(kk_Chain);
        kk_u64* results = (kk_u64*)((unsigned char*)graph + graph->results);
        // The first records are fetched with the head, before it is known how many there are.
        if (threadIdx.x < sizeof(kk_Chain) / 16) kk_copy_ahead((uint4*)&kk_block.chain + threadIdx.x, (const uint4*)from + threadIdx.x);
        fetch_records(0, records, KK_CHUNK);
        kk_wait_for_copies();
        kk_workers_meet();
        const kk_u32 length = kk_block.chain.length, first = kk_block.chain.node;
        const kk_u64 number = (kk_u64)graph->number << 32;
        kk_u64 successor = 0;
        if (threadIdx.x < kk_block.chain.successors) successor = kk_look(successors_of(graph) + kk_block.chain.first + threadIdx.x);
        if (threadIdx.x == 0) kk_block.next = 0;
        if (threadIdx.x == KK_PUBLISHER) kk_block.in_node = number | (first + 1);
        kk_u32 most = 1;  // at once
        for (kk_u32 from = 0, side = 0; from < length; from += KK_CHUNK, side ^= 1) {
            const kk_u32 left = length - from, count = left < KK_CHUNK ? left : KK_CHUNK;
            if (left > KK_CHUNK) fetch_records(side ^ 1, records + (from + KK_CHUNK) * (kk_u64)KK_SLOT, left - KK_CHUNK);
            for (kk_u32 i = 0; i < count;) {
                const unsigned char* record = kk_block.chunk[side] + i * KK_SLOT;
                const kk_u32 node = first + from + i, asked = count - i < most ? count - i : most, since = kk_cycles();
                const kk_u32 ran = run_records(record, asked, KK_AS_NODES, node + 1, results + node), run = ran & ~KK_STOPPED;
                i += run;
                if (!(ran & KK_STOPPED) && run < asked) {
                    run_wide_node(kk_block.chunk[side] + i * KK_SLOT, number, first + from + i, results);
                    i++;
                }
                if (i == count && left > KK_CHUNK) kk_wait_for_copies();  // they meet below
                most = ran & KK_STOPPED ? 0 : i < count || left > KK_CHUNK ? pace(KK_AS_NODES, asked, since) : most;
                if (!most) {
                    answer_if_called();
                    most = 1;
                }
            }
        }
        return successor;
    }

    __device__ __noinline__ void run_wide_node(const unsigned char* record, kk_u64 number, kk_u32 node, kk_u64* results) {
        const kk_u64 begun = kk_trace_time();
        call_all(record, results + node);
        if (threadIdx.x == KK_PUBLISHER) kk_block.in_node = number | (node + 2);
        kk_trace(begun, *(const kk_u32*)record, KK_IN_GRAPH | KK_TRACED_WIDE, node);
    }

    __device__ static const kk_u64* successors_of(const kk_Graph* graph) {
        return (const kk_u64*)((const unsigned char*)graph + graph->successors);
    }

    __device__ void fetch_records(kk_u32 side, const unsigned char* from, kk_u32 count) {
        const kk_u32 pieces = (count < KK_CHUNK ? count : KK_CHUNK) * (KK_SLOT / 16);
        for (kk_u32 i = threadIdx.x; i < pieces; i += KK_THREADS) kk_copy_ahead((uint4*)kk_block.chunk[side] + i, (const uint4*)from + i);
    }

    __device__ void answer_if_called() {
        if (threadIdx.x == 0) kk_block.todo = is_called() ? KK_TODO_WIDE : KK_TODO_TASKS;
        kk_workers_meet();
        const bool called = kk_block.todo == KK_TODO_WIDE;
        kk_workers_meet();
        if (called) answer();
    }

    // Something was run: count that in the chains that wait for it. Those that wait for nothing more are queued, but for one if
    // this block goes on: `kk_block.next`, which was 0. All workers, each with its first successor; what was run was run before they met.
    __device__ void signal(kk_Graph* graph, kk_u32 first, kk_u32 count, bool goes_on, kk_u64 successor) {
        kk_u32* queue = (kk_u32*)((unsigned char*)graph + graph->queue);
        const kk_u32 lane = threadIdx.x % 32;
        if (threadIdx.x < count) kk_fence_grid();
        for (kk_u32 i = threadIdx.x; i - lane < count; i += KK_THREADS) {
            bool ready = i < count;
            kk_u32 chain = 0;
            if (ready) {
                if (i >= KK_THREADS) successor = kk_look(successors_of(graph) + first + i);
                const kk_u32 wanted = (kk_u32)(successor >> 32);
                chain = (kk_u32)successor;
                if (wanted > 1) {
                    kk_u32* arrived = &((kk_Chain*)((unsigned char*)graph + chain * 16ull))->arrived;
                    ready = atomicAdd(arrived, 1u) + 1u == wanted;
                    if (ready) {
                        kk_tell(arrived, 0u);
                        kk_fence_grid();  // what the others did, for whoever runs it
                    }
                }
                if (ready && goes_on) ready = atomicCAS(&kk_block.next, 0u, chain) != 0u;
            }
            const kk_u32 queued = __ballot_sync(KK_ALL, ready);
            if (queued) {
                const int leader = __ffs(queued) - 1;
                kk_u32 at = 0;
                if ((int)lane == leader) at = (kk_u32)(atomicAdd(&graph->tickets.value, (kk_u64)__popc(queued) << 32) >> 32);
                at = __shfl_sync(KK_ALL, at, leader) + __popc(queued & ((1u << lane) - 1u));
                if (ready) kk_tell(&queue[at], chain);
            }
        }
        kk_workers_meet();
    }

    // Work on a graph, beginning with a chain if it is not 0, until all of it is run. All workers. A block that helps leaves
    // as well when it has tasks of its own: `done` are run.
    __device__ void work_on(kk_Graph* graph, kk_u32 chain, bool helps, kk_u64 done) {
        kk_u32 ticket = KK_NONE;
        for (;;) {
            while (chain) {
                const kk_u64 successor = run_chain(graph, chain);
                const kk_u32 first = kk_block.chain.first, count = kk_block.chain.successors;
                if (count) {
                    bool goes_on = true;
                    if (helps) {
                        if (threadIdx.x == 0) kk_block.goes_on = !has_tasks(done);
                        kk_workers_meet();
                        goes_on = kk_block.goes_on;
                    }
                    signal(graph, first, count, goes_on, successor);
                } else {
                    if (threadIdx.x == 0) {
                        kk_fence_grid();
                        atomicAdd(&graph->ended.value, 1u);
                    }
                    kk_workers_meet();
                }
                chain = kk_block.next;
                if (!chain) kk_workers_meet();  // else there is one before it changes
            }
            if (threadIdx.x == 0) {
                kk_block.in_node = 0;
                kk_block.todo = find_chain(graph, &ticket, helps, done);
                kk_fence_grid();
            }
            kk_workers_meet();
            const int todo = kk_block.todo;
            chain = kk_block.next;
            kk_workers_meet();
            if (todo == KK_TODO_END) return;
            if (todo == KK_TODO_WIDE) answer();
        }
    }

    // Wait for a chain that is ready: `kk_block.next`. Or for the end, or a call. The first worker.
    //
    // Chains go to those who have tickets. A block takes one when it sees, or hopes, that more chains were queued than tickets
    // given. A ticket for nothing is given back, which only the holder of the last one can do, so they go back one by one.
    __device__ int find_chain(kk_Graph* graph, kk_u32* ticket, bool helps, kk_u64 done) {
        kk_u32* queue = (kk_u32*)((unsigned char*)graph + graph->queue);
        const kk_u32 chains = graph->chains, ends = graph->ends;
        kk_u32 spins = 0;
        kk_block.next = 0;
        if (helps && *ticket == KK_NONE && has_tasks(done)) return KK_TODO_END;
        if (*ticket == KK_NONE) *ticket = (kk_u32)atomicAdd(&graph->tickets.value, 1ull);
        for (;;) {
            const kk_u64 tickets = kk_look(&graph->tickets.value);
            const kk_u32 chain = *ticket < chains ? kk_look(&queue[*ticket]) : 0u;
            const kk_u32 ended = kk_look(&graph->ended.value);
            const kk_u32 calls = kk_look(&grid.wide_calls.value);
            const kk_u32 queued = (kk_u32)(tickets >> 32), given = (kk_u32)tickets;
            if (chain) {
                kk_tell(&queue[*ticket], 0u);
                *ticket = KK_NONE;
                kk_block.next = chain;
                return KK_TODO_TASKS;
            }
            if (ended == ends) return KK_TODO_END;
            if (calls != kk_block.seen_wide && is_called()) return KK_TODO_WIDE;
            if (*ticket != KK_NONE) {
                if (queued <= *ticket && given == *ticket + 1 && atomicCAS(&graph->tickets.value, tickets, tickets - 1) == tickets)
                    *ticket = KK_NONE;
            } else if (given < queued) {
                *ticket = (kk_u32)atomicAdd(&graph->tickets.value, 1ull);
            } else if (helps && has_tasks(done)) {
                return KK_TODO_END;
            } else if (++spins > 100) {
                __nanosleep(100);
            }
        }
    }

    // Run a whole graph, with those blocks that help. All workers.
    __device__ __noinline__ void run_graph(const unsigned char* record, kk_u64 done) {
        kk_Graph* graph = (kk_Graph*)*(const kk_u64*)(record + 8);
        take(&graph->lock.value);
        if (threadIdx.x == 0) {
            kk_block.next = 0;
            kk_block.run = offer(graph);
        }
        kk_workers_meet();
        signal(graph, 0, graph->roots, true, threadIdx.x < graph->roots ? kk_look(successors_of(graph) + threadIdx.x) : 0);
        const kk_u32 chain = kk_block.next;
        kk_workers_meet();
        work_on(graph, chain, false, done);
        if (kk_block.run != KK_NONE) {
            kk_u64* state = &grid.runs[kk_block.run].state;
            if (threadIdx.x == 0) atomicAdd(state, 0ull - (kk_look(state) & (KK_RUN_OPEN | (kk_u64)KK_MOST_HELPERS << 16)));
            wait_until([state] { return (kk_look(state) & 0xffff) == 0; });
        }
        if (threadIdx.x == 0) {
            kk_tell(&graph->tickets.value, 0ull);
            kk_tell(&graph->ended.value, 0u);
            kk_fence_grid();
            if (kk_block.run != KK_NONE) kk_tell(&grid.runs[kk_block.run].lock.value, 0u);
            kk_tell(&graph->lock.value, 0u);
        }
        kk_workers_meet();
    }

    // Offer a graph to other blocks: as which run, or KK_NONE if it is too narrow or as many are offered as there can be. The first
    // worker. The words of a run only change by adding and subtracting: a block that comes too late takes back what it added.
    __device__ kk_u32 offer(kk_Graph* graph) {
        kk_u32 helpers = graph->helpers < gridDim.x - 1 ? graph->helpers : gridDim.x - 1;
        if (helpers > KK_MOST_HELPERS) helpers = KK_MOST_HELPERS;
        for (kk_u32 i = 0; helpers && i < KK_RUNS; i++) {
            const kk_u32 one = (blockIdx.x + i) % KK_RUNS;
            kk_Run& run = grid.runs[one];
            if (kk_look(&run.lock.value) || atomicCAS(&run.lock.value, 0u, 1u)) continue;
            kk_fence_grid();
            kk_tell(&run.graph.value, (kk_u64)graph);
            kk_fence_grid();
            atomicAdd(&run.state, (1ull << 32) + KK_RUN_OPEN + ((kk_u64)helpers << 16));
            atomicAdd(&grid.offers.value, 1u);
            return one;
        }
        return KK_NONE;
    }

    // Whether a graph wants help, as far as the reader knows; `kk_block.run` is which. The first worker.
    __device__ bool find_offer() {
        if (*(volatile kk_u64*)kk_block.offered == 0) return false;
        for (kk_u32 i = 0; i < KK_RUNS; i++) {
            if (!kk_block.offered[i]) continue;
            kk_block.offered[i] = 0;  // until the reader has looked again
            kk_block.run = (i + blockIdx.x) % KK_RUNS;
            return true;
        }
        return false;
    }

    // Help with a graph that another block runs, unless it has ended. All workers.
    __device__ __noinline__ void join(kk_u64 done) {
        kk_Run& run = grid.runs[kk_block.run];
        if (threadIdx.x == 0) {
            const bool joined = kk_wants_help(atomicAdd(&run.state, 1ull));
            kk_fence_grid();
            kk_block.graph = joined ? kk_look(&run.graph.value) : 0;
            if (!joined) atomicAdd(&run.state, ~0ull);
        }
        kk_workers_meet();
        kk_Graph* graph = (kk_Graph*)kk_block.graph;
        kk_workers_meet();
        if (!graph) return;
        work_on(graph, 0, true, done);
        if (threadIdx.x == 0) {
            kk_fence_grid();
            atomicAdd(&run.state, ~0ull);
        }
        kk_workers_meet();
    }

    // --- the workers

    // Look for tasks as the reader does, which sleeps meanwhile. The first warp. KK_TODO_ONE: one was found. KK_TODO_TASKS: one
    // that needs the whole grid. -1: it is the reader's turn again, because there is more than one, or something else, or nothing.
    __device__ __forceinline__ int look(kk_u64 done, kk_Rest& rest) {
        const kk_u32 lane = threadIdx.x;
        const kk_u64* word = kk_word_of(lane, ring, grid);
        const kk_u32 calls = kk_block.seen_wide;  // changes only while the workers do something else
        // A look takes over a microsecond, and where one comes just too early, the next task waits for another. So the first look waits
        // until the host has had time to send it. How long that is, is learned: a little less each time that the first look finds a
        // task, much more when it is the second. So one in sixteen comes too early; with fewer, all others would come too late.
        while (kk_cycles() - rest.since < rest.cycles) {}
        __syncwarp();
        for (kk_u32 idle = 0; idle < KK_SPINS; idle++) {
            const kk_u64 seen = lane <= KK_CALLS_LANE ? kk_acquire_system(word) : 0;
            bool other = lane == 1 && seen == KK_COMMAND_EXIT;
            if (lane == KK_CALLS_LANE) other = (kk_u32)seen != calls;
            if (lane >= 16 && lane < KK_CALLS_LANE) other = kk_wants_help(seen);
            if (__any_sync(KK_ALL, other)) break;
            if (__all_sync(KK_ALL, kk_fits(lane, seen, done))) {
                kk_keep_copy(lane, seen, done);
                if (idle == 0 && rest.cycles >= KK_REST_LESS) rest.cycles -= KK_REST_LESS;
                if (idle == 1 && rest.cycles < KK_REST_MOST) rest.cycles += KK_REST_MORE;
                const bool wide = __shfl_sync(KK_ALL, (kk_u32)seen, 2) & KK_WIDE;
                if (lane == 0) kk_block.count = 1;
                if (lane == 0 && wide) {
                    kk_release_block(&kk_block.ready, done + 1);
                    atomicExch(&kk_block.looks, KK_READER);
                }
                __syncwarp();
                return wide ? KK_TODO_TASKS : KK_TODO_ONE;
            }
            if (__any_sync(KK_ALL, lane == 0 && seen > done)) break;
        }
        if (lane == 0) atomicExch(&kk_block.looks, KK_READER);
        __syncwarp();
        return -1;
    }

    // Run the task that the first warp has found, and tell the host. All workers.
    __device__ __forceinline__ void run_one(kk_u64 done, kk_Rest& rest) {
        const kk_u32 at = (kk_u32)done % KK_HELD;
        const unsigned char* record = kk_block.records + at * KK_SLOT;
        const kk_u64 begun = kk_trace_time();
        if (threadIdx.x == 0) {
            kk_release_block(&kk_block.ready, done + 1);
            atomicExch(&kk_block.looks, KK_RUNNING);  // from now on the reader may go on
        }
        run_records(record, 1, KK_AS_ONE, 0, &kk_block.results[at]);
        kk_trace(begun, *(const kk_u32*)record, 0, done + 1);
        if (threadIdx.x == 0) {
            kk_release_system((kk_u64*)(ring + KK_LINE * (2 + 2 * blockIdx.x)), done + 1);
#if KK_RESULTS
            kk_write_result(ring, done, kk_block.results[at]);  // not before: the release would wait until it is in the host's memory
            kk_block.results[at] = 0;
#endif
            kk_block.told = done + 1;  // before the bell, or the writer would tell it again
            kk_toll(kk_bell_of(done));
            kk_release_block(&kk_block.done, (kk_u32)done + 1u);  // behind it: the writer has perhaps not acquired `told`
            atomicCAS(&kk_block.looks, KK_RUNNING, KK_WORKERS);
        }
        __syncwarp();
        rest.since = kk_cycles();
    }

    // What there is to do, or -1: nothing now. The first worker.
    __device__ int find_work(kk_u64 done, bool& leaving) {
        const kk_u64 ready = kk_acquire_block(&kk_block.ready);
        const bool leave = kk_block.leave;
        if ((leave || may_be_called()) && is_called()) return KK_TODO_WIDE;
        if (!leave && ready != done) {
            kk_block.count = (kk_u32)(ready - done);
            return KK_TODO_TASKS;
        }
        if (find_offer()) return KK_TODO_JOIN;
        if (leave) {
            // All blocks stay until none can call another.
            if (!leaving) atomicAdd(&grid.leaving.value, 1u);
            leaving = true;
            if (kk_look(&grid.leaving.value) == gridDim.x) return KK_TODO_END;
        }
        return -1;
    }

    // Wait until there is something to do. The first warp.
    __device__ __forceinline__ int wait_for_work(kk_u64 done, bool& leaving, bool& asks, kk_u32& phase, kk_Rest& rest) {
        int spins = 0;
        for (;;) {
            int todo = -1;
            if (threadIdx.x == 0) {
                while (todo < 0) {
                    if (*(volatile kk_u32*)&kk_block.looks == KK_WORKERS) {
                        todo = KK_TODO_LOOK;
                    } else if ((todo = find_work(done, leaving)) < 0) {
                        if (asks && !leaving) atomicCAS(&kk_block.looks, KK_READER, KK_ASKED);
                        asks = false;
                        phase ^= kk_sleep_at(&kk_block.work_bell, phase, ++spins < 1000 ? 1000 : 20000);
                    } else if (atomicCAS(&kk_block.looks, KK_ASKED, KK_READER) == KK_WORKERS) {
                        atomicExch(&kk_block.looks, KK_READER);
                    }
                }
            }
            todo = __shfl_sync(KK_ALL, todo, 0);
            if (todo == KK_TODO_LOOK) todo = look(done, rest);
            if (todo >= 0) return todo;
        }
    }

    __device__ void work(kk_u64 done) {
        bool leaving = false, asks = false;
        kk_u32 phase = 0;  // of the bell
        kk_Rest rest = {0, 0};
        for (;;) {
            if (threadIdx.x < 32) {
                const int todo = wait_for_work(done, leaving, asks, phase, rest);
                if (threadIdx.x == 0) kk_block.turn = todo;
            }
            kk_workers_meet();
            const int todo = kk_block.turn;
            const kk_u32 count = kk_block.count;
            asks = true;
            if (todo == KK_TODO_ONE) {
                run_one(done, rest);
                done++;
                continue;
            }
            if (todo == KK_TODO_TASKS) {  // there are meetings behind each
                done = run_tasks(done, count);
                continue;
            }
            kk_workers_meet();
            if (todo == KK_TODO_END) break;
            if (threadIdx.x == 0) kk_block.busy = 1;
            if (todo == KK_TODO_WIDE) answer();
            if (todo == KK_TODO_JOIN) join(done);
            if (threadIdx.x == 0) kk_block.busy = 0;
        }
        if (threadIdx.x == KK_PUBLISHER) {
            kk_fence_block();
            kk_block.ended = 1;
            kk_toll(kk_bell_of(done));  // of a task that is not run: it only wakes the writer
        }
    }

    // Run tasks that were fetched, until somebody wants something else: how many are run ever. All workers.
    __device__ kk_u64 run_tasks(kk_u64 done, kk_u32 count) {
        for (kk_u32 most = 1; most;) {
            const kk_u32 at = (kk_u32)done % KK_HELD, straight = count < KK_HELD - at ? count : KK_HELD - at;
            const kk_u32 asked = straight < most ? straight : most, since = kk_cycles();
            const kk_u32 ran = run_records(kk_block.records + at * KK_SLOT, asked, KK_AS_TASKS, (kk_u32)done, &kk_block.results[at]);
            const kk_u32 run = ran & ~KK_STOPPED;
            done += run;
            count -= run;
            if (ran & KK_STOPPED) break;
            if (run < asked) {
                run_wide(done++);
                break;
            }
            if (!count) break;
            most = pace(KK_AS_TASKS, asked, since);
        }
        return done;
    }

    // Run a task that is not for this block alone. All workers.
    __device__ __noinline__ void run_wide(kk_u64 done) {
        const kk_u32 at = (kk_u32)done % KK_HELD;
        const unsigned char* record = kk_block.records + at * KK_SLOT;
        const kk_u32 task = *(const kk_u32*)record;
        const kk_u64 begun = kk_trace_time();
        if (task == KK_GRAPH) {
            run_graph(record, done);
        } else {
            call_all(record, &kk_block.results[at]);
        }
        if (threadIdx.x == KK_PUBLISHER) {
            kk_toll(kk_bell_of(done));
            kk_release_block(&kk_block.done, (kk_u32)done + 1u);
        }
        kk_trace(begun, task, KK_TRACED_WIDE, done + 1);
    }
};

// --- the reader

#define KK_REST_CYCLES 5000  // two or three microseconds

static __device__ void kk_read(kk_Grid& grid, const unsigned char* ring, kk_u64 ready) {
    const kk_u32 lane = threadIdx.x % 32;
    const unsigned char* slots = ring + KK_SLOTS_AT + (kk_u64)blockIdx.x * KK_CAPACITY * KK_SLOT;
    const kk_u64* word = kk_word_of(lane, ring, grid);
    kk_u64 running = ~0ull;  // a task of the workers that ran already when it was looked for before
    kk_u32 idle = 0;
    long long looked = 0;  // when, by the processor's clock
    while (!__shfl_sync(KK_ALL, kk_block.ended, 0)) {
        const kk_u32 looks = __shfl_sync(KK_ALL, *(volatile kk_u32*)&kk_block.looks, 0);
        if (looks >= KK_WORKERS) {
            kk_fence_block();
            ready = __shfl_sync(KK_ALL, (kk_u64)kk_block.ready, 0);
            // A task that runs for longer than a look takes is not waited for.
            if (looks == KK_RUNNING && ready == running && lane == 0) atomicCAS(&kk_block.looks, KK_RUNNING, KK_READER);
            running = looks == KK_RUNNING ? ready : ~0ull;
            idle = 0;
            looked = clock64();
            __nanosleep(1000);
            continue;
        }
        ready = __shfl_sync(KK_ALL, (kk_u64)kk_block.ready, 0);
        running = ~0ull;
        const kk_u64 told = __shfl_sync(KK_ALL, (kk_u64)kk_block.told, 0);
        if (looks == KK_ASKED && told == ready) {
            if (lane == 0 && atomicCAS(&kk_block.looks, KK_ASKED, KK_WORKERS) == KK_ASKED) kk_toll(&kk_block.work_bell);
            __syncwarp();
            continue;
        }
        const bool busy = __shfl_sync(KK_ALL, kk_block.busy, 0) || told != ready;
        // A fence of the workers or the writer waits for loads of this warp that are on the way, and a load over the bus takes a
        // microsecond. So while something runs here it looks now and then only, and not at all while many records are waiting.
        if (busy) {
            int rests = 0;
            if (lane == 0) {
                const long long since = clock64() - looked;
                rests = since < KK_REST_CYCLES || (since < 64 * KK_REST_CYCLES && (kk_u32)ready - kk_block.done >= KK_HELD / 2);
            }
            if (__shfl_sync(KK_ALL, rests, 0)) {
                __nanosleep(500);  // a warp that looks at shared memory all the time slows down the others
                continue;
            }
        }
        // While nothing runs, loads acquire, which is fastest. Beside a task they do not: an acquire empties the cache.
        const bool alone = !busy && idle <= KK_SPINS;
        kk_u64 seen = 0;
        kk_u32 calls = 0, offers = 0;
        if (lane < 16 + KK_RUNS) seen = alone ? kk_acquire_system(word) : kk_look_system(word);
        if (lane == 0) {
            calls = kk_look(&grid.wide_calls.value);
            offers = kk_look(&grid.offers.value);
            if (calls != kk_block.wide_calls) {
                kk_block.wide_calls = calls;
                kk_toll(&kk_block.work_bell);
            }
            const kk_u32 called = (int)(calls - kk_block.seen_wide) > 0 ? KK_WANTED : 0, wanted = kk_block.leave ? KK_WANTED : called;
            if (called != kk_block.watch[KK_AS_NODES].wanted) kk_block.watch[KK_AS_NODES].wanted = called;
            if (wanted != kk_block.watch[KK_AS_TASKS].wanted) kk_block.watch[KK_AS_TASKS].wanted = wanted;
        } else if (lane >= 16 && lane < 16 + KK_RUNS) {
            kk_block.offered[lane - 16] = kk_wants_help(seen);
        }
        if (__any_sync(KK_ALL, lane >= 16 && lane < 16 + KK_RUNS && kk_wants_help(seen)) && lane == 0) kk_toll(&kk_block.work_bell);
        const kk_u64 room = KK_HELD - (ready - told);
        if (__all_sync(KK_ALL, kk_fits(lane, seen, ready)) && room) {
            // The words of the copy say that they are the next record: no need to read it, or to trust the head.
            idle = 0;
            if (!alone) kk_fence_system();
            kk_keep_copy(lane, seen, ready);
            ready++;
            __syncwarp();
            if (lane == 0) {
                kk_release_block(&kk_block.ready, ready);
                kk_toll(&kk_block.work_bell);
            }
            looked = clock64();
            continue;
        }
        const kk_u64 head = __shfl_sync(KK_ALL, seen, 0), command = __shfl_sync(KK_ALL, seen, 1);
        if (lane == 0 && command == KK_COMMAND_EXIT) {
            kk_block.leave = 1;
            kk_block.watch[KK_AS_TASKS].wanted = KK_WANTED;
            kk_toll(&kk_block.work_bell);
        }
        kk_u64 count = head > ready ? head - ready : 0;  // it may be behind: a record came as a copy, and its head is on the way
        if (count > room) count = room;
        if (command == KK_COMMAND_EXIT) count = 0;
        if (count) {
            idle = 0;
            if (!alone) kk_fence_system();  // the records are read after the head
            __syncwarp();
            const kk_u32 pieces = (kk_u32)count * (KK_SLOT / 16);
            for (kk_u32 base = 0; base < pieces; base += 128) {
                uint4 got[4];
#pragma unroll
                for (int k = 0; k < 4; k++) {
                    const kk_u32 piece = base + k * 32 + lane;
                    const kk_u64 one = ready + piece / (KK_SLOT / 16);
                    if (piece < pieces)
                        got[k] = kk_fetch((const uint4*)(slots + one % KK_CAPACITY * KK_SLOT) + piece % (KK_SLOT / 16));
                }
#pragma unroll
                for (int k = 0; k < 4; k++) {
                    const kk_u32 piece = base + k * 32 + lane;
                    const kk_u64 one = ready + piece / (KK_SLOT / 16);
                    if (piece < pieces) ((uint4*)(kk_block.records + one % KK_HELD * KK_SLOT))[piece % (KK_SLOT / 16)] = got[k];
                }
            }
            ready += count;
            __syncwarp();
            if (lane == 0) {
                kk_release_block(&kk_block.ready, ready);
                kk_toll(&kk_block.work_bell);
            }
            looked = clock64();
        } else if (busy) {
            looked = clock64();
        } else if (head == ready && ++idle > KK_SPINS) {
            // Nothing for a while: look less often, but notice calls of other blocks.
            const kk_u32 naps = idle - KK_SPINS < KK_NAPS ? idle - KK_SPINS : KK_NAPS;
            if (lane == 0) {
                for (kk_u32 k = 0; k < naps && !kk_block.ended; k++) {
                    if (kk_look(&grid.wide_calls.value) != calls || kk_look(&grid.offers.value) != offers) break;
                    __nanosleep(500);
                }
            }
            __syncwarp();
        }
    }
}

// --- the writer

static __device__ void kk_write(unsigned char* ring, kk_u64 told) {
    const kk_u32 lane = threadIdx.x % 32;
    kk_u64* line = (kk_u64*)(ring + KK_LINE * (2 + 2 * blockIdx.x));
    kk_u64 beaten = 0, watched = ~0ull, watched_node = ~0ull;
    kk_u32 looks = 0;
    for (;;) {
        kk_u64 done = told;
        if (lane == 0) {  // the others wait
            for (;;) {
                const bool ended = kk_block.ended;
                if (ended) kk_fence_block();
                told = kk_acquire_block(&kk_block.told);  // the workers may have told some themselves
                const int more = (int)(kk_acquire_block(&kk_block.done) - (kk_u32)told);
                done = more > 0 ? told + more : told;
                if (done != told) {
                    if (!kk_was_tolled(kk_bell_of(done - 1), kk_phase_of(done - 1))) continue;
                    told = kk_block.told;  // and more since
                    if (told > done) done = told;
                }
                if (done != told) {
                    // Each acknowledgement waits for the memory. While tasks are waiting, several share one, within microseconds.
                    const kk_u64 ready = kk_block.ready, most = told + KK_HELD / 4, enough = ready < most ? ready : most;
                    if (done >= enough || kk_block.leave || ++looks > 40) break;
                    kk_sleep_at(kk_bell_of(enough - 1), kk_phase_of(enough - 1), 200);
                    continue;
                }
                if (ended) break;
                const kk_u64 now = kk_nanoseconds();
                if (now - beaten > KK_BEAT_NANOSECONDS) {
                    const bool busy = kk_block.ready != done;
                    kk_tell_system(line + 1, now);
                    kk_tell_system(line + 2, busy ? done + 1 : 0);
                    if (done != watched) kk_tell_system(line + 3, now);
                    watched = busy ? done : ~0ull;
                    const kk_u64 node = kk_block.in_node;
                    if (node != watched_node) {
                        kk_tell_system(line + 4, node);
                        kk_tell_system(line + 5, now);
                        watched_node = node;
                    }
                    beaten = now;
                }
                kk_sleep_at(kk_bell_of(told), kk_phase_of(told), 5000);
            }
            looks = 0;
        }
        done = __shfl_sync(KK_ALL, done, 0);
        told = __shfl_sync(KK_ALL, told, 0);
        if (done == told) break;
        __syncwarp();
        if (lane == 0) kk_release_system(line, done);  // what the tasks wrote is visible before they count as done
#if KK_RESULTS
        // Not before: the release would wait until they are in the host's memory.
        __syncwarp();
        for (kk_u64 i = told + lane; i < done; i += 32) {
            kk_write_result(ring, i, kk_block.results[i % KK_HELD]);
            kk_block.results[i % KK_HELD] = 0;
        }
        __syncwarp();
#endif
        told = done;
        if (lane == 0) kk_release_block(&kk_block.told, told);
    }
    if (lane == 0) kk_tell_system(line + 4, 0);
}

extern "C" __global__ void __launch_bounds__(KK_ALL_THREADS, 1)
kk_entry_resident(const kk_u64 kk_ring, const kk_u64 kk_grid, const kk_u64 kk_traces KK_ARRAYS_DECLARE) {
    unsigned char* ring = (unsigned char*)kk_ring;
    kk_Grid& grid = *(kk_Grid*)kk_grid;
    if (threadIdx.x == 0) {
        kk_block.ready = kk_block.told = kk_look_system((const kk_u64*)(ring + KK_LINE * (2 + 2 * blockIdx.x)));
        kk_block.done = (kk_u32)kk_block.told;
        kk_block.wide_calls = kk_block.seen_wide = kk_block.leave = kk_block.ended = kk_block.count = 0;
        for (int i = 0; i < 3; i++) kk_block.watch[i].wanted = kk_block.watch[i].stop = 0;
        kk_block.in_node = 0;
        kk_make_bell(&kk_block.work_bell);
        kk_make_bell(&kk_block.unheard);
        for (int i = 0; i < KK_RUNS; i++) kk_block.offered[i] = 0;
        kk_block.busy = 0;
        kk_block.looks = KK_READER;
#if KK_TIMELINE
        kk_block.traces = (unsigned char*)kk_traces + (kk_u64)blockIdx.x * (KK_LINE + KK_TIMELINE * 32ull);
        kk_block.traced = *(const kk_u64*)kk_block.traces;
#endif
        kk_block_x = 0;
        kk_blocks_x = 1;
    }
    __syncthreads();
    const kk_u64 done = kk_block.told;
    for (kk_u64 task = done + threadIdx.x; task < done + KK_HELD; task += KK_ALL_THREADS) {
        kk_block.results[task % KK_HELD] = 0;
        kk_make_bell(kk_bell_of(task));
    }
    __syncthreads();
    for (kk_u64 task = done + threadIdx.x; task < done + KK_HELD; task += KK_ALL_THREADS) {
        if (kk_phase_of(task)) kk_toll(kk_bell_of(task));
    }
    __syncthreads();
    if (threadIdx.x < KK_THREADS) {
        kk_Resident resident = {grid, ring KK_ARRAYS_PASS};
        resident.work(done);
    } else if (threadIdx.x < KK_THREADS + 32) {
        kk_read(grid, ring, done);
    } else {
        kk_write(ring, done);
    }
}
