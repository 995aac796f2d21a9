// SPDX-License-Identifier: Apache-2.0
// Caches of 16,384 tokens, 8 heads of 128 channels, one thread: decoding beside a read of keys and values, shifts beside
// none, unrotated keys beside anchored ones; an append beside the copy; operations on 1,024 pages.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>

#include "limits.h"
#include "line.h"
#include "posenc/cache/key_cache.h"
#include "posenc/posenc.h"

namespace posenc::bench {
namespace {

constexpr Index kCached = 16384, kCacheHeads = 8, kCacheDim = 128,
                kCacheToken = kCacheHeads * kCacheDim;

struct CacheCase {
  KeyType type;
  PagePool pool;
  KeyCache cache;
  Index share;
  std::vector<float> q, out;

  static PoolSizes sizes(KeyType t) {
    PoolSizes s;
    s.pages = kCached / 16 + 2, s.heads = kCacheHeads, s.head_dim = s.value_dim = kCacheDim;
    s.key_type = s.value_type = t;
    return s;
  }
  static std::vector<float> numbers(Index n, double step) {
    std::vector<float> x(static_cast<std::size_t>(n));
    for (std::size_t i = 0; i < x.size(); ++i)
      x[i] = static_cast<float>(std::sin(static_cast<double>(i) * step));
    return x;
  }

  CacheCase(KeyType t, KeyKeeping keeping, Index shifts, Index queries = 1)
      : type(t),
        pool(sizes(t)),
        cache(pool,
              resolve(Rope{.head_dim = kCacheDim, .base = 500000, .pairing = Pairing::half_split}),
              keeping),
        share(queries),
        q(numbers(queries * kCacheToken, 0.51)),
        out(q.size()) {
    const std::vector<float> k = numbers(kCached * kCacheToken, 0.37),
                             v = numbers(kCached * kCacheToken, 0.73);
    const OwnedPositions at = arange(0, kCached);
    NewTokens n;
    n.k = heads(k.data(), kCached, kCacheHeads, kCacheDim);
    n.v = heads(v.data(), kCached, kCacheHeads, kCacheDim), n.positions = at;
    cache.append(n);
    for (Index s = 1; s < shifts; ++s) cache.shift(0, kCached * s / shifts, 1);
  }
  void run(bool exact = false) {
    const Index order[] = {kCached}, at[] = {kCached};
    AttentionArgs a;
    a.q = heads(std::as_const(q).data(), 1, share * kCacheHeads, kCacheDim);
    a.mask.causal = true, a.mask.query_order = tensor(order, {1, 1});
    a.query_positions = positions(std::span(at)), a.exact = exact;
    a.scale = 1 / std::sqrt(static_cast<double>(kCacheDim));
    cache.attend(a, {heads(out.data(), 1, share * kCacheHeads, kCacheDim), {}}, inline_executor());
  }
  void read() const {
    for (const ConstHeads& h : {pool.keys(), pool.values()}) {
      const Index bytes = h.dtype == DType::f32 ? 4 : h.dtype == DType::u8 ? 1 : 2;
      volatile float sink = plain_loops().read_ahead(
          static_cast<const float*>(h.data),
          static_cast<std::size_t>(kCached * kCacheHeads * h.dim * bytes) / sizeof(float));
      (void)sink;
    }
  }
  double error() {
    run();
    const std::vector<float> got = out;
    run(true);
    double worst = 0;
    for (std::size_t n = 0; n < got.size(); ++n)
      worst = std::max(worst, std::abs(static_cast<double>(got[n]) - static_cast<double>(out[n])));
    return worst;
  }
};

double stored_bytes(KeyType t) {
  return 2.0 * static_cast<double>(kCached * kCacheToken) *
         (t == KeyType::f32    ? 4
          : t == KeyType::q8_0 ? 34.0 / 32
                               : 2);
}

Line cache_line(KeyType type, const std::string& what, const std::string& limit, double goal) {
  Line l;
  l.name = "key_cache/" + std::string(enum_text(type)) + "/" + what;
  l.bytes = stored_bytes(type);
  l.flops = static_cast<double>(4 * kCached * kCacheToken);
  l.limit_name = limit, l.goal = goal;
  return l;
}

Line decode_cache_line(KeyType type, Index share, double goal) {
  Line l = cache_line(type, "decode/queries:" + std::to_string(share), "read_ahead", goal);
  l.prepare = [=] {
    const auto c = std::make_shared<CacheCase>(type, KeyKeeping::anchored, 1, share);
    Prepared p;
    p.max_error = c->error(), p.bound = 5e-6;
    p.run = [c] { c->run(); };
    p.limit = [c] { c->read(); };
    return p;
  };
  return l;
}

// Beside the same cache with anchored keys at one shift.
Line beside_line(KeyType type, const std::string& what, KeyKeeping keeping, Index shifts,
                 double goal) {
  Line l = cache_line(type, what, "anchored", goal);
  l.prepare = [=] {
    const auto c = std::make_shared<CacheCase>(type, keeping, shifts);
    const auto plain = std::make_shared<CacheCase>(type, KeyKeeping::anchored, 1);
    Prepared p;
    p.max_error = c->error(), p.bound = 5e-6;
    p.run = [c] { c->run(); };
    p.limit = [plain] { plain->run(); };
    return p;
  };
  return l;
}

using Clock = std::chrono::steady_clock;
template <class F>
double seconds_of(const F& f) {
  const Clock::time_point begin = Clock::now();
  f();
  return std::chrono::duration<double>(Clock::now() - begin).count();
}
template <class F>
Measured median_of(double seconds, double bound, const F& sample) {
  std::vector<double> all;
  for (double spent = 0; (spent < seconds && all.size() < 2000) || all.size() < 9;) {
    spent += seconds_of([&] { all.push_back(sample()); });
  }
  std::sort(all.begin(), all.end());
  Measured m;
  m.seconds = all[all.size() / 2], m.quiet_seconds = all[all.size() / 10];
  m.limit_seconds = m.quiet_limit_seconds = bound;
  m.samples = static_cast<int>(all.size());
  return m;
}

// What a token takes beyond the copy of its key and value, in runs of 1,024 tokens.
Line append_line(KeyType type) {
  return self_timed(
      "key_cache/" + std::string(enum_text(type)) + "/append", "copy_and_1us",
      [type](double seconds) {
        constexpr Index kRun = 1024;
        const PagePool pool(CacheCase::sizes(type));
        KeyCache cache(pool, resolve(Rope{.head_dim = kCacheDim, .pairing = Pairing::half_split}));
        const DType dtype = type == KeyType::f32 ? DType::f32 : DType::bf16;
        const std::vector<float> x(kCacheToken, 1);
        std::vector<float> copy(2 * kRun * kCacheToken);
        const Index shape[] = {1, kCacheHeads, kCacheDim};
        NewTokens t;
        t.k = t.v =
            heads(tensor(static_cast<const void*>(x.data()), dtype, shape), HeadsLayout::thd);
        const auto bytes = static_cast<std::size_t>(kCacheToken * size_of(dtype));
        const auto run = [&] {
          for (Index n = 0; n < kRun; ++n) {
            t.positions = positions(std::span<const Index>(&n, 1));
            cache.append(t, inline_executor());
          }
        };
        const auto plain = [&] {
          auto* to = reinterpret_cast<std::byte*>(copy.data());
          for (Index n = 0; n < 2 * kRun; ++n, to += bytes) std::memcpy(to, x.data(), bytes);
          volatile float sink = copy[static_cast<std::size_t>(kCacheToken)];
          (void)sink;
        };
        return median_of(seconds, 1e-6, [&] {
          cache.clear();
          return std::max(1e-9, seconds_of(run) - seconds_of(plain)) / kRun;
        });
      });
}

enum class PagesDo { shift, evict, fork };
Line pages_line(PagesDo what) {
  constexpr const char* kNames[] = {"shift", "evict", "fork"};
  return self_timed(
      "key_cache/" + std::string(kNames[static_cast<int>(what)]) + "/1024_pages", "20us",
      [what](double seconds) {
        const auto c = std::make_shared<CacheCase>(KeyType::bf16, KeyKeeping::anchored, 1);
        Index by = 1;
        return median_of(seconds, 20e-6, [&] {
          if (what == PagesDo::shift)
            return seconds_of([&] { c->cache.shift(0, kCached, by = -by); });
          std::optional<KeyCache> copy;
          const double fork = seconds_of([&] { copy.emplace(c->cache.fork()); });
          return what == PagesDo::fork ? fork : seconds_of([&] { copy->evict(4, kCached - 4); });
        });
      });
}

}  // namespace

std::vector<Line> key_cache_lines() {
  std::vector<Line> v{
      decode_cache_line(KeyType::f32, 1, 1.15), decode_cache_line(KeyType::bf16, 1, 1.35),
      decode_cache_line(KeyType::q8_0, 1, 1.8), decode_cache_line(KeyType::f32, 4, 1.5),
      decode_cache_line(KeyType::bf16, 4, 2),   decode_cache_line(KeyType::q8_0, 4, 2.8)};
  for (const KeyType t : {KeyType::f32, KeyType::bf16, KeyType::q8_0}) {
    v.push_back(beside_line(t, "shifts:2", KeyKeeping::anchored, 2, 1.03));
    v.push_back(beside_line(t, "shifts:8", KeyKeeping::anchored, 8, 1.1));
    v.push_back(
        beside_line(t, "unrotated", KeyKeeping::unrotated, 1, t == KeyType::q8_0 ? 1.2 : 1.1));
    if (t != KeyType::q8_0) v.push_back(append_line(t));
  }
  for (const PagesDo what : {PagesDo::shift, PagesDo::evict, PagesDo::fork})
    v.push_back(pages_line(what));
  return v;
}

}  // namespace posenc::bench
