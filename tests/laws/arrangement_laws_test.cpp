// SPDX-License-Identifier: Apache-2.0
// Padding, packing and the split of a batch change nothing: every real token of every scheme at the
// input gets the same bits, forward and backward, by the reference and by plans of every dtype
// on every instruction set.
#include <gtest/gtest.h>

#include <cmath>

#include "absolute/token_memory.h"
#include "laws/absolute_samples.h"
#include "laws/module_samples.h"
#include "posenc/absolute/plan.h"
#include "posenc/core/isa.h"

namespace posenc {
namespace {

using namespace test;

// Four documents of the positions of a pool, as indices into it.
std::vector<std::vector<Index>> documents_of(Index pool) {
  std::vector<std::vector<Index>> all{{0}, {}, {}, {pool - 1, 0}};
  for (Index k = pool / 2; k < pool; ++k) all[1].push_back(k);
  for (Index k = 0; k < pool; ++k) all[2].push_back(k);
  return all;
}
std::vector<Index> lengths_of(const std::vector<std::vector<Index>>& documents) {
  std::vector<Index> n;
  for (const std::vector<Index>& d : documents) n.push_back(static_cast<Index>(d.size()));
  return n;
}
// The positions of an arrangement; padding stands at the first of the pool.
OwnedPositions gathered(const OwnedPositions& pool,
                        const std::vector<std::vector<Index>>& documents, const Arrangement& a) {
  return std::visit(
      [&](const auto& v) {
        std::decay_t<decltype(v)> out;
        for (Index axis = 0; axis < pool.axes; ++axis)
          for (const Slot& s : a.slots) {
            const Index k = s.document < 0 ? 0
                                           : documents[static_cast<std::size_t>(s.document)]
                                                      [static_cast<std::size_t>(s.at)];
            out.push_back(v[static_cast<std::size_t>(axis * pool.batch * pool.count() + k)]);
          }
        return explicit_positions(std::move(out), a.batch, pool.axes);
      },
      pool.value);
}

template <class S>
class Case {
 public:
  Case(const S& s, const OwnedPositions& pool) : scheme_(s), pool_(pool) {
    parameters_ = waves_for(s.parameters());
    documents_ = documents_of(pool.batch * pool.count());
    lengths_ = lengths_of(documents_);
    scheme_.lower(const_views(views(parameters_)), lowered_);
    channels_ = channels_of(lowered_);
    ++channels_.reached;  // one that no term touches
  }

  void check() {
    check_arrangements(lengths_, 0, [&](const Arrangement& a) { return by_reference(a); });
    for (const Isa isa : supported_isas())
      for (const DType type : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
        SCOPED_TRACE(std::string(isa_name(isa)) + " " + std::string(dtype_name(type)));
        force_isa(isa);
        const InputPlan plan(lowered_, type);
        check_arrangements(lengths_, 0, [&](const Arrangement& a) { return by_plan(plan, a); });
      }
    reset_isa();
  }

 private:
  Numbers x(const Arrangement& a, double padded) const {
    return token_waves(a, lengths_, channels_.reached, 0.1, padded);
  }
  Numbers up(const Arrangement& a) const {
    return token_waves(a, lengths_, channels_.reached + channels_.appended, 0.4, 0);
  }

  Outcome by_reference(const Arrangement& a) {
    const OwnedPositions at = gathered(pool_, documents_, a);
    // What stands in padding must reach nothing: not a number.
    Numbers in = x(a, std::nan("")), y = up(a), d_y = up(a);
    apply_input(in.view(), at, lowered_, y.view());
    in = x(a, 0.5);
    Numbers d_x = in;
    const OwnedInputGradients g = zero_gradients(lowered_, at);
    input_gradient(in.view(), at, lowered_, d_y.view(), d_x.view(), g.terms);
    return outcome(a, y.value, d_x.value, g);
  }

  Outcome by_plan(const InputPlan& plan, const Arrangement& a) {
    const OwnedPositions at = gathered(pool_, documents_, a);
    const DType type = plan.dtype();
    Tokens in = narrowed(x(a, std::nan("")), type), y = narrowed(up(a), type), d_y = y;
    plan.apply(in.view(), at, y.view());
    in = narrowed(x(a, 0.5), type);
    Tokens d_x = in;
    const OwnedInputGradients g = zero_gradients(lowered_, at);
    std::vector<std::byte> workspace(plan.gradient_workspace(a.batch, a.tokens));
    plan.gradient(in.view(), at, d_y.view(), d_x.view(), g.terms, workspace);
    return outcome(a, widened(y), widened(d_x), g);
  }

  static Tokens narrowed(const Numbers& n, DType type) {
    Tokens out(type, n.shape[0], n.shape[1], n.shape[2]);
    std::size_t i = 0;
    for (Index b = 0; b < out.batch; ++b)
      for (Index t = 0; t < out.tokens; ++t)
        for (Index c = 0; c < out.width; ++c) narrow(n.value[i++], type, out.pointer(b, t, c));
    return out;
  }
  static std::vector<double> widened(Tokens& t) {
    std::vector<double> v;
    for (Index b = 0; b < t.batch; ++b)
      for (Index k = 0; k < t.tokens; ++k)
        for (Index c = 0; c < t.width; ++c) v.push_back(t.get(b, k, c));
    return v;
  }

  Outcome outcome(const Arrangement& a, const std::vector<double>& y,
                  const std::vector<double>& d_x, const OwnedInputGradients& g) {
    Outcome out;
    give(out, a, lengths_, y);
    give(out, a, lengths_, d_x);
    for (const InputGradient& t : g.terms) {
      if (t.position.empty()) continue;
      const auto* d = static_cast<const double*>(t.position.data);
      const auto slots = static_cast<std::ptrdiff_t>(a.slots.size());
      for (Index axis = 0; axis < t.position.shape[0]; ++axis)
        give(out, a, lengths_, std::vector<double>(d + axis * slots, d + (axis + 1) * slots));
    }
    std::vector<Numbers> d_parameters = zeros_for(scheme_.parameters());
    scheme_.pull_back(const_views(views(parameters_)), g.terms, views(d_parameters));
    give_sums(out, d_parameters);
    return out;
  }

  S scheme_;
  OwnedPositions pool_;
  std::vector<Numbers> parameters_;
  std::vector<std::vector<Index>> documents_;
  std::vector<Index> lengths_;
  LoweredInput lowered_;
  Channels channels_;
};

// Sines of one axis are made otherwise where positions follow each other.
template <class S>
bool has_one_phase(const S& scheme) {
  if (!scheme.parameters().empty()) return false;
  LoweredInput low;
  scheme.lower({}, low);
  const InputTerm& t = low.terms[0];
  return low.terms.size() == 1 && t.phase != nullptr && t.phase->axes == 1 && t.axis == 0;
}

TEST(ArrangementLaws, PaddingPackingAndSplitsChangeNoTokenOfAnyScheme) {
  int count = 0;
  for_absolute_samples([&](const auto& s) {
    SCOPED_TRACE(to_text(Scheme(s)));
    ++count;
    Case(s, positions_for(s)).check();
    if (has_one_phase(s)) Case(s, arange(-3, 40)).check();
  });
  EXPECT_GE(count, static_cast<int>(AbsoluteSchemes::size));
}

TEST(ArrangementLaws, PaddingPackingAndSplitsChangeNoTokenOfAnyModule) {
  const std::vector<Index> lengths{1, 3, 7, 2};
  for_each(InputModules{}, [&]<class T>() {
    for (const T& s : samples(Type<T>{})) {
      SCOPED_TRACE(to_text(Scheme(s)));
      const Encoding e{Scheme(s), {}};
      EXPECT_EQ(parse_encoding(to_text(e)), e);
      check_arrangements(lengths, gap_of(s),
                         [&](const Arrangement& a) { return run_module(s, a, lengths); });
    }
  });
}

}  // namespace
}  // namespace posenc
