// SPDX-License-Identifier: Apache-2.0
// Attention of one sequence over several processes of MPI, with a learned bias and its gradient.
//
//   mpirun -n 4 build/examples/ring        (as root: --allow-run-as-root; more ranks than cores: --oversubscribe)
//
// Each process has the tokens of its rank (zigzag: causal work is the same for all). The ring's rows are compared with
// those of one call over the whole sequence, which a real program would not make.
#include <mpi.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <utility>
#include <vector>

#include "posenc/parallel/mpi.h"
#include "posenc/parallel/ring.h"
#include "posenc/positions.h"

using namespace posenc;

constexpr Index kTokens = 1024, kHeads = 4, kKeyHeads = 2, kDim = 64, kBuckets = 32;
using Floats = std::vector<float>;
using Tokens = std::vector<Index>;

// Some tokens of the sequence: what goes into attention, its result, and its gradients.
struct Share {
  // The same numbers in every process, of which each takes its own tokens.
  explicit Share(Tokens of) : tokens(std::move(of)) {
    std::mt19937 random(0);
    for (const auto& [x, heads] : {std::pair{&q, kHeads}, {&k, kKeyHeads}, {&v, kKeyHeads}})
      *x = rows(numbers(random, heads));
    out = d_q = Floats(q.size());
    d_k = Floats(k.size());
    ones.assign(out.size(), 1);  // the gradient of the sum of the output
    sums.resize(tokens.size() * kHeads);
  }

  AttentionArgs call() const {
    AttentionArgs a;
    a.q = heads(q.data(), count(), kHeads, kDim);
    a.k = heads(k.data(), count(), kKeyHeads, kDim);
    a.v = heads(v.data(), count(), kKeyHeads, kDim);
    a.query_positions = a.key_positions = positions(std::span<const Index>(tokens));
    a.mask.causal = true;  // by the orders of the tokens in the sequence
    a.mask.query_order = a.mask.key_order = tensor(tokens.data(), {1, count()});
    return a;
  }
  AttentionResult result() {
    return {heads(out.data(), count(), kHeads, kDim), tensor(sums.data(), {1, kHeads, count()})};
  }
  ConstAttentionResult upstream() const { return {heads(ones.data(), count(), kHeads, kDim), {}}; }
  AttentionGradients gradients() {
    AttentionGradients g;
    g.q = heads(d_q.data(), count(), kHeads, kDim);
    g.k = heads(d_k.data(), count(), kKeyHeads, kDim);
    return g;
  }
  NamedGradient of_table() { return {"table", tensor(d_table.data(), {kBuckets, kHeads})}; }

  Index count() const { return static_cast<Index>(tokens.size()); }
  Tokens tokens;
  Floats q, k, v, out, ones, d_q, d_k;
  std::vector<double> sums, d_table = std::vector<double>(kBuckets * kHeads);

 private:
  static Floats numbers(std::mt19937& random, Index heads) {
    std::normal_distribution<float> normal;
    Floats x(static_cast<std::size_t>(kTokens * heads * kDim));
    for (float& n : x) n = normal(random);
    return x;
  }
  Floats rows(const Floats& all) const {
    const std::size_t row = all.size() / kTokens;
    Floats own;
    for (const Index t : tokens)
      for (std::size_t n = 0; n < row; ++n)
        own.push_back(all[static_cast<std::size_t>(t) * row + n]);
    return own;
  }
};

// The largest difference of the rows of `own` from those of the whole.
double difference(const Floats& own, const Floats& whole, const Tokens& tokens) {
  const std::size_t row = whole.size() / kTokens;
  double most = 0;
  for (std::size_t n = 0; n < own.size(); ++n) {
    const std::size_t at = static_cast<std::size_t>(tokens[n / row]) * row + n % row;
    most = std::max(most, static_cast<double>(std::fabs(own[n] - whole[at])));
  }
  return most;
}

bool run(const Communicator& processes) {
  const Index rank = processes.rank(processes.context), ranks = processes.size(processes.context);
  const AttentionPlan plan(
      {"rope head_dim=64 pairing=half_split", "t5 bidirectional=false"},
      {.heads = kHeads, .head_dim = kDim, .key_heads = kKeyHeads, .scale = 0.125});
  std::vector<double> table;
  for (int n = 0; n < kBuckets * kHeads; ++n) table.push_back(std::cos(n));
  const NamedArray parameters[] = {
      {"table", tensor(std::as_const(table).data(), {kBuckets, kHeads})}};
  const DistanceRange distances[] = {{1 - kTokens, kTokens - 1}};
  const LoweredAttention lowered = plan.lower(parameters, distances);

  Share own(shard_tokens(kTokens, ranks, rank, ShardLayout::zigzag));
  const NamedGradient named[] = {own.of_table()};  // summed over the ranks
  ring_attend(lowered, own.call(), {}, own.result(), processes);
  ring_attend_backward(lowered, own.call(), {}, own.result(), own.upstream(), own.gradients(),
                       named, processes);

  Share whole(shard_tokens(kTokens, 1, 0, ShardLayout::contiguous));
  const NamedGradient of_whole[] = {whole.of_table()};
  lowered.forward(whole.call(), {}, whole.result());
  lowered.backward(whole.call(), {}, whole.result(), whole.upstream(), whole.gradients(), of_whole);

  double of_table = 0;
  for (std::size_t n = 0; n < own.d_table.size(); ++n)
    of_table = std::max(of_table, std::fabs(own.d_table[n] - whole.d_table[n]));
  const double out = difference(own.out, whole.out, own.tokens),
               d_q = difference(own.d_q, whole.d_q, own.tokens),
               d_k = difference(own.d_k, whole.d_k, own.tokens);
  std::printf(
      "rank %d of %d: %d tokens, largest errors: out %.1e, d q %.1e, d k %.1e, d table %.1e\n",
      static_cast<int>(rank), static_cast<int>(ranks), static_cast<int>(own.count()), out, d_q, d_k,
      of_table);
  return std::max({out, d_q, d_k, of_table}) < 2e-5;
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  bool good = false;
  {
    const MpiGroup group;
    good = run(group.communicator());
  }
  MPI_Finalize();
  return good ? 0 : 1;
}
