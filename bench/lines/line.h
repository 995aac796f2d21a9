// SPDX-License-Identifier: Apache-2.0
// What is measured, once: `posenc bench` prints it for users, bench/main.cpp gives the same lines
// to Google Benchmark. A line carries its own limit (the same bytes moved by the plainest possible
// loop, in the same run, in turns) and its own check: nothing is timed before its result is right.
#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "posenc/rotary/spec.h"

namespace posenc::bench {

struct Prepared {
  std::function<void()> run;    // one call
  std::function<void()> limit;  // the same bytes, plainly; empty: no limit (null ratio)
  double max_error = 0;         // against a double reference, found before timing
  double bound = 0;             // what max_error must not exceed
};

// Medians of samples taken in turns, so that another program on the machine slows both alike; and
// the quiet tenth: one sample in ten was as fast. On a shared machine lines in memory have two
// speeds, and the median may be that of either.
struct Measured {
  double seconds = 0, limit_seconds = 0, max_error = 0;
  double quiet_seconds = 0, quiet_limit_seconds = 0;  // 0: not measured
  int samples = 0;
};

struct Line {
  std::string name;  // rotate/f32/half_split/in_place/8192/threads:1
  double bytes = 0;  // read once + written once
  double flops = 0;
  std::string limit_name;  // in_place, copy, write, plain_loop, ...
  double goal = 0;         // ratio aimed at; 0: none
  std::function<Prepared()> prepare;
  std::function<Measured(double seconds)> measured;  // instead: a line that times itself
};

// A line that times itself against a bound of its own, its limit_seconds: ratio 1 is the goal.
Line self_timed(std::string name, std::string bound, std::function<Measured(double)>);

RotarySpec llama31();  // Llama-3.1 8B's, 64 pairs

std::vector<Line> lines();
std::vector<Line> rotation_lines();
std::vector<Line> table_lines();
std::vector<Line> rerotation_lines();  // cached keys that move
std::vector<Line> key_cache_lines();   // decoding with KeyCache, and its operations
std::vector<Line> input_lines();
std::vector<Line> embed_lines();
std::vector<Line> pope_lines();
std::vector<Line> attention_lines();       // the exact engine
std::vector<Line> fast_attention_lines();  // the fast engine
std::vector<Line> beside_plain_lines();  // the same beside calls without terms, and on two threads
std::vector<Line>
beside_f32_lines();  // the same in 16 bits, by conversion where the machine has no products of bf16
std::vector<Line> word_lines();             // the same by products of bf16
std::vector<Line> order_lines();            // orders beside an offset
std::vector<Line> decode_lines();           // few queries, by the fast engine
std::vector<Line> region_lines();           // Self-Extend, rotated in the call
std::vector<Line> attention_shape_lines();  // decoding, selective attention, PaTH
std::vector<Line> ring_lines();             // one sequence over two ranks
std::vector<Line> lowering_lines();         // tables that are projected
std::vector<Line> small_lines();            // plans
std::vector<Line> stall_lines();            // the worst call of a reader
std::vector<Line> overhead_lines();         // the API beside the bare kernel

// Throws std::runtime_error when the check fails.
Measured measure(const Line&, double seconds_to_spend);

}  // namespace posenc::bench
