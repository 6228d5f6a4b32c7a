// The wave simulator: runs a kernel's threads on the CPU, one block after the other, with one fiber per thread.
//
// A fiber runs until it ends, waits at a barrier, or waits in an exchange with its wave. Fibers run in forward,
// backward or shuffled order, to expose code that relies on one of them. LDS is poisoned before each block, ends right
// before an inaccessible page, and is limited to the size that every target has. The simulator cannot show times,
// memory order between blocks, or register usage.
#include "wavesim.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <sys/mman.h>
#include <utility>
#include <vector>

#if !defined(__x86_64__)
#error "the wave simulator switches fibers with x86-64 code"
#endif

extern "C" void wavesim_switch(void** save, void* load);
asm(R"(
.text
.globl wavesim_switch
.type wavesim_switch, @function
wavesim_switch:
  push %rbp
  push %rbx
  push %r12
  push %r13
  push %r14
  push %r15
  mov %rsp, (%rdi)
  mov %rsi, %rsp
  pop %r15
  pop %r14
  pop %r13
  pop %r12
  pop %rbx
  pop %rbp
  ret
.size wavesim_switch, .-wavesim_switch
)");

namespace {

constexpr size_t STACK_BYTES = 128 * 1024;
constexpr size_t LDS_LIMIT = 48 * 1024;
// For launches that request more, for a target that has it.
constexpr size_t LDS_MOST = 227 * 1024;
constexpr size_t LDS_ROOM = 256 * 1024;
constexpr unsigned char POISON = 0xCB;

enum class State { Ready, Barrier, Exchange, Done };

struct Fiber {
  void* stack_pointer = nullptr;
  std::vector<char> stack = std::vector<char>(STACK_BYTES);
  State state = State::Ready;
  alignas(16) unsigned char slot[16] = {};
};

struct Launch {
  const char* name;
  void (*thread)(const void*);
  const void* args;
};

std::mutex one_launch;
std::vector<Fiber> fibers;
Launch launch_now;
unsigned current;
void* scheduler;
std::vector<std::pair<const void*, std::pair<size_t, size_t>>> shared_arrays;  // key, offset, bytes
unsigned char* lds;                                                             // static arrays
unsigned char* dyn_lds_end;
size_t shared_bytes, shared_limit;
int order = 0;

[[noreturn]] void fail(const char* why) {
  std::fprintf(stderr, "wave simulator: kernel %s, block %u %u %u, thread %u: %s\n", launch_now.name,
               wavesim_block_idx.x, wavesim_block_idx.y, wavesim_block_idx.z, current, why);
  std::abort();
}

// Memory that ends right before an inaccessible page.
unsigned char* guarded(size_t bytes) {
  constexpr size_t PAGE = 4096;
  void* base = mmap(nullptr, bytes + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) fail("no memory for LDS");
  mprotect((char*)base + bytes, PAGE, PROT_NONE);
  return (unsigned char*)base;
}

void wait_as(State state) {
  fibers[current].state = state;
  wavesim_switch(&fibers[current].stack_pointer, scheduler);
}

void enter() {
  launch_now.thread(launch_now.args);
  wait_as(State::Done);
  std::abort();
}

void resume(unsigned fiber) {
  current = fiber;
  wavesim_thread_idx = {fiber, 0, 0};
  wavesim_switch(&scheduler, fibers[fiber].stack_pointer);
}

// A permutation of 0..count: the order in which the fibers of a wave, and waves, run.
unsigned turn(unsigned at, unsigned count) {
  if (order == 0) return at;
  if (order == 1) return count - 1 - at;
  // An odd step visits every element of a power of two; other counts start at an offset.
  unsigned step = (count & (count - 1)) == 0 ? 2u * order + 1 : 1;
  return (at * step + order) % count;
}

// Runs the threads of a wave until all are done or at a barrier.
void drain_wave(unsigned first, unsigned end) {
  for (;;) {
    for (unsigned at = 0; at < end - first; at++) {
      unsigned fiber = first + turn(at, end - first);
      if (fibers[fiber].state == State::Ready) resume(fiber);
    }
    auto count = [&](State state) {
      return std::count_if(fibers.begin() + first, fibers.begin() + end, [&](Fiber& f) { return f.state == state; });
    };
    if (count(State::Exchange) == 0) return;
    if (count(State::Exchange) != end - first) fail("a shuffle that not all lanes of the wave reach");
    for (unsigned fiber = first; fiber < end; fiber++) fibers[fiber].state = State::Ready;
  }
}

void run_block(unsigned threads, unsigned lds_bytes) {
  const size_t room = lds_bytes > LDS_LIMIT ? LDS_ROOM : LDS_ROOM / 4;
  std::memset(lds, POISON, room);
  std::memset(dyn_lds_end - room, POISON, room);
  shared_limit = lds_bytes > LDS_LIMIT ? LDS_MOST : LDS_LIMIT;
  shared_arrays.clear();
  shared_bytes = lds_bytes;
  for (unsigned at = 0; at < threads; at++) {
    // The state after a switch: six saved registers and the return address. The stack is aligned as at function entry.
    auto top = ((uintptr_t)fibers[at].stack.data() + STACK_BYTES) & ~(uintptr_t)15;
    auto* words = (uint64_t*)top - 8;
    std::fill(words, words + 8, 0);
    words[6] = (uint64_t)(uintptr_t)&enter;
    fibers[at].stack_pointer = words;
    fibers[at].state = State::Ready;
  }
  unsigned wave = (unsigned)wavesim_wave, waves = (threads + wave - 1) / wave;
  for (;;) {
    for (unsigned at = 0; at < waves; at++) {
      unsigned first = turn(at, waves) * wave;
      drain_wave(first, std::min(threads, first + wave));
    }
    auto done = std::count_if(fibers.begin(), fibers.begin() + threads, [](Fiber& f) { return f.state == State::Done; });
    if (done == threads) return;
    if (done != 0) fail("a barrier that not all threads of the block reach");
    for (unsigned at = 0; at < threads; at++) fibers[at].state = State::Ready;
  }
}

}  // namespace

extern "C" {

WaveDim wavesim_thread_idx, wavesim_block_idx, wavesim_grid_dim;
int wavesim_wave = 32;
void* wavesim_dyn_lds;

// Sets the width of a wave and the order of threads: 0 forward, 1 backward, 2 and more shuffled.
void wavesim_configure(int wave, int new_order) {
  std::lock_guard<std::mutex> guard(one_launch);
  wavesim_wave = wave;
  order = new_order;
}

int wavesim_lane() { return (int)(current % (unsigned)wavesim_wave); }

void* wavesim_shared(const void* key, unsigned long bytes) {
  for (auto& [known, place] : shared_arrays)
    if (known == key) return lds + place.first;
  size_t offset = shared_arrays.empty() ? 0 : shared_arrays.back().second.first + shared_arrays.back().second.second;
  offset = (offset + 15) & ~(size_t)15;
  shared_bytes += bytes;
  if (shared_bytes > shared_limit) fail("more LDS than there is");
  shared_arrays.push_back({key, {offset, bytes}});
  return lds + offset;
}

void wavesim_barrier() {
  unsigned me = current;
  wait_as(State::Barrier);
  current = me;
}

void wavesim_exchange(void* value, unsigned long bytes, int source_lane) {
  unsigned me = current, first = me / (unsigned)wavesim_wave * (unsigned)wavesim_wave;
  if (bytes > sizeof(Fiber::slot)) fail("a shuffle of more than 16 bytes");
  std::memcpy(fibers[me].slot, value, bytes);
  wait_as(State::Exchange);
  unsigned source = first + (unsigned)source_lane;
  if (source_lane < 0 || source_lane >= wavesim_wave) fail("a shuffle from outside the wave");
  std::memcpy(value, fibers[source].slot, bytes);
  // No slot is written again before all lanes have read it.
  wait_as(State::Exchange);
}

void wavesim_run(const char* name, const HostLaunch* launch, void (*thread)(const void*), unsigned threads) {
  std::lock_guard<std::mutex> guard(one_launch);
  launch_now = {name, thread, launch->args};
  current = 0;
  wavesim_block_idx = {0, 0, 0};
  if (launch->block[0] != threads || launch->block[1] != 1 || launch->block[2] != 1)
    fail("launched with another block than the kernel is written for");
  if (!lds) {
    lds = guarded(LDS_ROOM);
    dyn_lds_end = guarded(LDS_ROOM) + LDS_ROOM;
  }
  if (launch->lds_bytes > LDS_MOST) fail("more LDS than there is");
  if (fibers.size() < threads) fibers.resize(threads);
  wavesim_dyn_lds = dyn_lds_end - ((launch->lds_bytes + 15) & ~15u);
  wavesim_grid_dim = {launch->grid[0], launch->grid[1], launch->grid[2]};
  for (unsigned z = 0; z < launch->grid[2]; z++)
    for (unsigned y = 0; y < launch->grid[1]; y++)
      for (unsigned x = 0; x < launch->grid[0]; x++) {
        wavesim_block_idx = {x, y, z};
        run_block(threads, launch->lds_bytes);
      }
}

}  // extern "C"
