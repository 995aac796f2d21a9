// SPDX-License-Identifier: Apache-2.0
// What stands at the input of a model in one pass: words, positions and segments by their ids,
// summed, then a norm; and its gradients.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "limits.h"
#include "line.h"
#include "posenc/absolute/embed.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace posenc::bench {
namespace {

constexpr Index kBatch = 8, kTokens = 512, kWidth = 768, kWords = 30522, kSegments = 2;
constexpr double kEpsilon = 1e-12;

// A number that every dtype holds exactly.
double entry(Index i) {
  return static_cast<double>(i * 37 % 101 - 50) / 64;
}
void put(const SharedBuffer& b, DType type, Index i, double x) {
  const auto f = static_cast<float>(x);
  if (type == DType::f32) {
    b->as<float>()[i] = f;
    return;
  }
  std::uint32_t bits;
  std::memcpy(&bits, &f, 4);
  b->as<std::uint16_t>()[i] = static_cast<std::uint16_t>(bits >> 16);  // bf16
}
double get(const SharedBuffer& b, DType type, Index i) {
  if (type == DType::f32) return static_cast<double>(b->as<float>()[i]);
  const std::uint32_t bits = static_cast<std::uint32_t>(b->as<std::uint16_t>()[i]) << 16;
  float f;
  std::memcpy(&f, &bits, 4);
  return static_cast<double>(f);
}

// Pages of 4 KiB, as memory has them that nobody asked larger ones for. What was in it is lost.
void small_pages([[maybe_unused]] const SharedBuffer& b) {
#if defined(MADV_NOHUGEPAGE)
  constexpr std::uintptr_t kPage = 4096;
  const auto at = reinterpret_cast<std::uintptr_t>(b->data());
  const std::uintptr_t first = (at + kPage - 1) / kPage * kPage;
  const std::uintptr_t end = (at + b->bytes()) / kPage * kPage;
  auto* from = b->as<std::byte>() + (first - at);
  madvise(from, end - first, MADV_NOHUGEPAGE);
  madvise(from, end - first, MADV_DONTNEED);
#endif
}

// BERT's sizes. Words stand where no one guesses them, positions in order, segments in halves.
struct Model {
  DType type;
  bool normed;
  double scale;
  std::array<SharedBuffer, 3> table;
  SharedBuffer y;
  std::array<std::vector<Index>, 3> ids;
  std::vector<EmbedPart> parts;
  SharedBuffer gamma, beta;
  std::optional<EmbedNorm> norm;

  Model(DType t, bool with_norm, bool small = false)
      : type(t), normed(with_norm), scale(with_norm ? 2 : 1) {
    const std::array<Index, 3> rows{kWords, kTokens, kSegments};
    y = buffer(static_cast<std::size_t>(kBatch * kTokens * kWidth * size_of(type)));
    if (small) small_pages(y);
    for (Index i = 0; i < kBatch * kTokens; ++i) {
      ids[0].push_back(i * 7919 % kWords);
      ids[2].push_back(i % kTokens * 2 / kTokens);
    }
    for (Index i = 0; i < kTokens; ++i) ids[1].push_back(i);
    for (std::size_t k = 0; k < (normed ? 3 : 2); ++k) {
      table[k] = buffer(static_cast<std::size_t>(rows[k] * kWidth * size_of(type)));
      if (small) small_pages(table[k]);
      for (Index i = 0; i < rows[k] * kWidth; ++i) put(table[k], type, i, entry(i));
      EmbedPart part;
      const Index shape[] = {rows[k], kWidth}, whole[] = {kBatch, kTokens}, line[] = {kTokens};
      part.table = tensor(table[k]->data(), type, shape);
      part.ids = k == 1 ? tensor(static_cast<const void*>(ids[k].data()), DType::i64, line)
                        : tensor(static_cast<const void*>(ids[k].data()), DType::i64, whole);
      if (k == 0) part.scale = scale;
      parts.push_back(part);
    }
    if (!normed) return;
    const auto vector = [&](SharedBuffer& to, double first) {
      to = buffer(static_cast<std::size_t>(kWidth * size_of(type)));
      for (Index c = 0; c < kWidth; ++c) put(to, type, c, first + entry(c) / 4);
      const Index shape[] = {kWidth};
      return tensor(static_cast<const void*>(to->data()), type, shape);
    };
    norm = EmbedNorm{vector(gamma, 1), vector(beta, 0), kEpsilon};
  }
  Index row(std::size_t part, Index token) const {
    return part == 1 ? token % kTokens : ids[part][static_cast<std::size_t>(token)];
  }
  TensorView out() const {
    const Index shape[] = {kBatch, kTokens, kWidth};
    return tensor(y->data(), type, shape);
  }
  // The sum at a token, and its mean and deviation.
  std::vector<double> sum(Index token, double& mean, double& deviation) const {
    std::vector<double> s(static_cast<std::size_t>(kWidth), 0.0);
    for (std::size_t k = 0; k < parts.size(); ++k)
      for (Index c = 0; c < kWidth; ++c)
        s[static_cast<std::size_t>(c)] += parts[k].scale * entry(row(k, token) * kWidth + c);
    mean = 0;
    for (const double x : s) mean += x / kWidth;
    double variance = 0;
    for (const double x : s) variance += (x - mean) * (x - mean) / kWidth;
    deviation = std::sqrt(variance + kEpsilon);
    return s;
  }
  double error() const {
    double worst = 0;
    for (Index t = 0; t < kBatch * kTokens; t += 61) {
      double mean = 0, deviation = 1;
      const std::vector<double> s = sum(t, mean, deviation);
      for (Index c = 0; c < kWidth; ++c) {
        const double x = s[static_cast<std::size_t>(c)];
        const double want =
            normed ? (x - mean) / deviation * get(gamma, type, c) + get(beta, type, c) : x;
        worst = std::max(worst, std::abs(get(y, type, t * kWidth + c) - want));
      }
    }
    return worst;
  }
};

// A word's row is read and y written; positions and segments stay in the cache.
Line embed_line(DType type, bool normed, double goal, bool small = false) {
  Line l;
  l.name = "input/" + std::string(dtype_name(type)) + (normed ? "/embed_bert/" : "/embed_gpt2/") +
           (small ? "small_pages/" : "") + std::to_string(kBatch) + 'x' + std::to_string(kTokens) +
           'x' + std::to_string(kWidth);
  const auto bytes = static_cast<std::size_t>(kBatch * kTokens * kWidth * size_of(type));
  l.bytes = 2 * static_cast<double>(bytes);
  l.limit_name = "copy";
  l.goal = goal;
  l.prepare = [=] {
    const auto m = std::make_shared<Model>(type, normed, small);
    const auto from = buffer(bytes), to = buffer(bytes);
    Prepared r;
    r.run = [m] { embed(m->parts, m->norm, m->out(), inline_executor()); };
    r.run();
    r.max_error = m->error();
    r.bound = type == DType::f32 ? 4e-7 : 1.6e-2;  // one rounding of numbers below 8
    const Copy copy = best_copy(bytes);
    r.limit = [=] { copy(to->as<float>(), from->as<float>(), bytes / 4); };
    return r;
  };
  return l;
}

// What rows that lie anywhere cost by themselves: those of the words, copied, the next ones
// prefetched. No embedding of these tables is faster.
Line gather_line() {
  Line l;
  l.name = "input/f32/gather_rows/" + std::to_string(kBatch) + 'x' + std::to_string(kTokens) + 'x' +
           std::to_string(kWidth);
  constexpr std::size_t kRow = kWidth * sizeof(float), kBytes = kBatch * kTokens * kRow;
  l.bytes = 2 * static_cast<double>(kBytes);
  l.limit_name = "copy";
  l.prepare = [] {
    const auto m = std::make_shared<Model>(DType::f32, false);
    const auto from = buffer(kBytes), to = buffer(kBytes);
    Prepared r;
    r.run = [m] {
      constexpr Index kAhead = 4, kCount = kBatch * kTokens;
      const auto row = [&](Index token) {
        return m->table[0]->as<char>() + kRow * m->row(0, token);
      };
      for (Index t = 0; t < kCount; ++t) {
        const char* next = row(std::min(t + kAhead, kCount - 1));
        for (std::size_t at = 0; at < kRow; at += 64) __builtin_prefetch(next + at, 0, 2);
        plain_loops().copy_streaming(m->y->as<float>() + t * kWidth,
                                     reinterpret_cast<const float*>(row(t)), kWidth);
      }
    };
    r.run();
    for (Index t = 0; t < kBatch * kTokens; t += 61)
      for (Index c = 0; c < kWidth; ++c)
        r.max_error = std::max(r.max_error, std::abs(get(m->y, DType::f32, t * kWidth + c) -
                                                     entry(m->row(0, t) * kWidth + c)));
    const Copy copy = best_copy(kBytes);
    r.limit = [=] { copy(to->as<float>(), from->as<float>(), kBytes / 4); };
    return r;
  };
  return l;
}

// The gradient of one word's row, token by token.
double word_error(const Model& m, const SharedBuffer& d_y, const SharedBuffer& d_words,
                  Index word) {
  std::vector<double> want(static_cast<std::size_t>(kWidth), 0.0);
  for (Index t = 0; t < kBatch * kTokens; ++t) {
    if (m.row(0, t) != word) continue;
    double mean = 0, deviation = 1, up = 0, along = 0;
    const std::vector<double> s = m.sum(t, mean, deviation);
    const auto g = [&](Index c) {
      return get(d_y, DType::f32, t * kWidth + c) * get(m.gamma, DType::f32, c);
    };
    const auto x = [&](Index c) { return (s[static_cast<std::size_t>(c)] - mean) / deviation; };
    for (Index c = 0; c < kWidth; ++c) up += g(c) / kWidth, along += g(c) * x(c) / kWidth;
    for (Index c = 0; c < kWidth; ++c)
      want[static_cast<std::size_t>(c)] += m.scale * (g(c) - up - x(c) * along) / deviation;
  }
  double worst = 0;
  for (Index c = 0; c < kWidth; ++c)
    worst = std::max(worst, std::abs(static_cast<double>(d_words->as<float>()[word * kWidth + c]) -
                                     want[static_cast<std::size_t>(c)]));
  return worst;
}

// d_y and the words' rows are read, rows of the gradient read and written.
Line embed_gradient_line() {
  Line l;
  l.name = "input/f32/embed_gradient/" + std::to_string(kBatch) + 'x' + std::to_string(kTokens) +
           'x' + std::to_string(kWidth);
  const Index count = kBatch * kTokens * kWidth;
  const auto bytes = static_cast<std::size_t>(4 * count);
  l.bytes = 4 * static_cast<double>(bytes);
  l.limit_name = "copy";
  l.goal = 5;
  l.prepare = [=] {
    const auto m = std::make_shared<Model>(DType::f32, true);
    const auto d_y = buffer(bytes), from = buffer(2 * bytes), to = buffer(2 * bytes);
    for (Index i = 0; i < count; ++i) d_y->as<float>()[i] = static_cast<float>(entry(i));
    std::vector<SharedBuffer> d;
    for (const EmbedPart& part : m->parts) {
      d.push_back(buffer(static_cast<std::size_t>(4 * part.table.shape[0] * kWidth)));
      std::memset(d.back()->data(), 0, d.back()->bytes());
    }
    Prepared r;
    r.run = [=] {
      std::vector<TensorView> to_parts;
      for (std::size_t k = 0; k < d.size(); ++k)
        to_parts.push_back(tensor(d[k]->as<float>(), {m->parts[k].table.shape[0], kWidth}));
      embed_gradient(m->parts, m->norm, tensor(d_y->as<float>(), {kBatch, kTokens, kWidth}),
                     {.parts = to_parts, .gamma = {}, .beta = {}}, inline_executor());
    };
    r.run();
    for (const Index t : {5, 600, 4001})
      r.max_error = std::max(r.max_error, word_error(*m, d_y, d[0], m->row(0, t)));
    r.bound = 1e-6;
    const Copy copy = best_copy(2 * bytes);
    r.limit = [=] { copy(to->as<float>(), from->as<float>(), bytes / 2); };
    return r;
  };
  return l;
}

}  // namespace

std::vector<Line> embed_lines() {
  return {embed_line(DType::f32, true, 2),
          embed_line(DType::bf16, true, 2),
          embed_line(DType::f32, false, 1.5),
          embed_line(DType::f32, true, 2, true),
          embed_line(DType::bf16, true, 2, true),
          embed_line(DType::f32, false, 1.5, true),
          gather_line(),
          embed_gradient_line()};
}

}  // namespace posenc::bench
