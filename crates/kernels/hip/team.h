// Teams: `lanes` threads, a power of two, that compute one result together. The 256 threads of a block form teams of
// equal size. The threads of a team are adjacent, or, if TURNED, threads of the same lane are: then there are at most
// 32 lanes.
#if TURNED
#define TEAM(lanes) (threadIdx.x % (256 / (lanes)))
#define LANE(lanes) (threadIdx.x / (256 / (lanes)))
#else
#define TEAM(lanes) (threadIdx.x / (lanes))
#define LANE(lanes) (threadIdx.x % (lanes))
#endif

struct Sum { template <class V> DEV V of(V a, V b) { return a + b; } };
struct Largest {
  template <class V> DEV V of(V a, V b) { return max_of(a, b); }
  DEV f32 of(f32 a, f32 b) { return fmaxf(a, b); }
};

// Combines the values of a team into one, which every thread gets. All threads of the block call it; `lds` holds 256
// elements. Calls alternate between its halves, so that no barrier is needed before the writes; `turn` says which half
// is next.
template <class Op, class V> DEV V team_all(V v, u32 lanes, V* lds, u32& turn) {
#if TURNED
  if (lanes > 1) {
    u32 teams = 256 / lanes;
    __syncthreads();
    lds[threadIdx.x] = v;
    __syncthreads();
    v = lds[TEAM(lanes)];
    for (u32 lane = 1; lane < lanes; lane++) v = Op::of(v, lds[lane * teams + TEAM(lanes)]);
  }
#else
  for (u32 mask = min_of(lanes, 32u) / 2; mask; mask >>= 1) v = Op::of(v, SHFL_XOR(v, mask));
  if (lanes > 32) {
    V* slots = lds + turn * (256 / 32);
    turn ^= 1;
    if (threadIdx.x % 32 == 0) slots[threadIdx.x / 32] = v;
    __syncthreads();
    u32 first = TEAM(lanes) * (lanes / 32);
    v = slots[first];
    for (u32 part = 1; part < lanes / 32; part++) v = Op::of(v, slots[first + part]);
  }
#endif
  return v;
}
