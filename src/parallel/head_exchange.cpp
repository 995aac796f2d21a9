// SPDX-License-Identifier: Apache-2.0
#include "parallel/head_exchange.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "attention/call/order_view.h"
#include "parallel/ring_call.h"
#include "posenc/core/error.h"

namespace posenc::inline v0::detail {
namespace {

Heads dense_heads(std::byte* data, Index batch, Index tokens, Index n, Index dim, DType t) {
  return {data, batch, tokens, n, dim, tokens * n * dim, n * dim, dim, 1, t};
}
std::size_t bytes_of_heads(const ConstHeads& h) {
  return static_cast<std::size_t>(h.batch * h.tokens * h.heads * h.dim * size_of(h.dtype));
}
// Tokens of one rank among all.
template <class F>
void each_token(const TokenPlaces& p, Index rank, const Heads& all, const Heads& some,
                const F& fn) {
  for (Index b = 0; b < some.batch; ++b)
    for (Index t = 0; t < some.tokens; ++t) {
      const Index size = size_of(some.dtype), row = some.heads * some.dim * size;
      fn(static_cast<std::byte*>(all.data) +
             (b * all.batch_stride + p.of(rank, t) * all.token_stride) * size,
         static_cast<std::byte*>(some.data) +
             (b * some.batch_stride + t * some.token_stride) * size,
         static_cast<std::size_t>(row));
    }
}

// One round for each distance between ranks: send(rank) gives what a rank gets,
// received(rank, bytes) takes what came.
template <class Send, class Receive>
void each_rank(const Group& g, std::size_t bytes, const Send& send, const Receive& received) {
  PacketBytes from(bytes);
  for (Index step = 0; step < g.size(); ++step) {
    const Index to = (g.rank() + step) % g.size(), source = (g.rank() + g.size() - step) % g.size();
    const std::span<const std::byte> sent = send(to);
    if (step == 0) {
      received(g.rank(), sent);
      continue;
    }
    Exchange(g, Channel::heads, to, sent, source, from).finish();
    received(source, std::span<const std::byte>(from));
  }
}

}  // namespace

TokenPlaces::TokenPlaces(const Group& group, Index tokens, const ConstTensorView& order,
                         const ConstTensorView& cu)
    : each_(tokens), ranks_(group.size()), place_(static_cast<std::size_t>(tokens * ranks_)) {
  if (!cu.empty()) {
    std::vector<Index> own;
    for (Index s = 0; s < cu.shape[0]; ++s) own.push_back(read_index(cu, s));
    cu_.assign(own.size(), 0);
    const std::vector<Index> all = gather(group, own);
    for (std::size_t n = 0; n < all.size(); ++n) cu_[n % own.size()] += all[n];
  }
  if (!order.empty() && order.shape[0] != 1) {
    std::iota(place_.begin(), place_.end(), Index{0});
    return;
  }
  std::vector<Token> own;
  Index sequence = 0;
  for (Index t = 0; t < each_; ++t) {
    while (!cu.empty() && t >= read_index(cu, sequence + 1)) ++sequence;
    own.push_back({sequence, read_index(order, 0, t)});
  }
  sort(gather(group, own));
}

void TokenPlaces::sort(const std::vector<Token>& all) {
  std::vector<std::size_t> sorted(all.size());
  std::iota(sorted.begin(), sorted.end(), std::size_t{0});
  std::stable_sort(sorted.begin(), sorted.end(), [&](std::size_t a, std::size_t b) {
    return std::pair(all[a].sequence, all[a].order) < std::pair(all[b].sequence, all[b].order);
  });
  counted_.resize(std::max<std::size_t>(cu_.size(), 2) - 1);
  bool counts = true;
  for (std::size_t n = 0; n < sorted.size(); ++n) {
    place_[sorted[n]] = static_cast<Index>(n);
    const Token& t = all[sorted[n]];
    Counted& c = counted_[static_cast<std::size_t>(t.sequence)];
    if (c.count == 0) c.first = t.order;
    counts = counts && t.order - c.first == c.count++;
  }
  if (!counts) counted_.clear();
}

Heads exchange_heads(const Group& g, const TokenPlaces& places, const ConstHeads& own,
                     PacketBytes& memory) {
  ConstHeads block = own;
  block.heads = head_block(own.heads, 0, g.size()).count;
  const Heads all = dense_heads(nullptr, own.batch, places.all(), block.heads, own.dim, own.dtype);
  Heads result = new_heads(all, own.dtype, memory);
  PacketBytes packed;
  const Heads sent = new_heads(block, own.dtype, packed);
  each_rank(
      g, bytes_of_heads(block),
      [&](Index rank) {
        copy_heads(sent, block_of(own, rank, g.size()));
        return std::span<const std::byte>(packed).first(bytes_of_heads(block));
      },
      [&](Index rank, std::span<const std::byte> bytes) {
        const Heads some = dense_heads(const_cast<std::byte*>(bytes.data()), own.batch, own.tokens,
                                       block.heads, own.dim, own.dtype);
        each_token(
            places, rank, result, some,
            [](std::byte* to, const std::byte* from, std::size_t n) { std::memcpy(to, from, n); });
      });
  return result;
}

void return_heads(const Group& g, const TokenPlaces& places, const ConstHeads& all,
                  const Heads& own, bool add) {
  if (own.data == nullptr) return;
  const Heads from = {const_cast<void*>(all.data),
                      all.batch,
                      all.tokens,
                      all.heads,
                      all.dim,
                      all.batch_stride,
                      all.token_stride,
                      all.head_stride,
                      all.dim_stride,
                      all.dtype};
  PacketBytes packed;
  const Heads sent =
      new_heads(dense_heads(nullptr, all.batch, places.each(), all.heads, all.dim, all.dtype),
                all.dtype, packed);
  const std::size_t bytes = bytes_of_heads(sent);
  each_rank(
      g, bytes,
      [&](Index rank) {
        each_token(places, rank, from, sent,
                   [](const std::byte* x, std::byte* y, std::size_t n) { std::memcpy(y, x, n); });
        return std::span<const std::byte>(packed).first(bytes);
      },
      [&](Index rank, std::span<const std::byte> came) {
        Heads some = sent;
        some.data = const_cast<std::byte*>(came.data());
        const Heads to = block_of(own, rank, g.size());
        add ? add_heads(to, some) : copy_heads(to, some);
      });
}

void GatheredTokens::add_rows(const void* data, Index rows, Index row_stride, Index tokens,
                              Index stride, Index element) {
  const auto* const from = static_cast<const std::byte*>(data);
  for (Index r = 0; r < rows; ++r)
    for (Index t = 0; t < tokens; ++t) {
      const std::byte* const x = from + (r * row_stride + t * stride) * element;
      own_.insert(own_.end(), x, x + element);
    }
}

void GatheredTokens::add(ConstTensorView& v, const TokenPlaces& p) {
  if (v.empty()) return;
  const Index size = size_of(v.dtype);
  list_.push_back({&v.data, &p, v.shape[0], size});
  add_rows(v.data, v.shape[0], v.stride[0], v.shape[1], v.stride[1], size);
  v.shape[1] = v.stride[0] = p.all(), v.stride[1] = 1;
}

void GatheredTokens::add(Positions& x, const TokenPlaces& p) {
  if (x.data == nullptr) return;
  const Index size = size_of(x.type);
  list_.push_back({&x.data, &p, x.axes * x.batch, size});
  for (Index a = 0; a < x.axes; ++a)
    add_rows(static_cast<const std::byte*>(x.data) + a * x.axis_stride * size, x.batch,
             x.batch_stride, x.count, x.token_stride, size);
  x.count = x.batch_stride = p.all(), x.token_stride = 1;
  x.axis_stride = x.batch * x.count;
}

void GatheredTokens::gather(const Group& g) {
  const std::vector<std::byte> all = detail::gather(g, own_);
  std::size_t at = 0;
  for (const Rows& x : list_) {
    const auto size = static_cast<std::size_t>(x.element);
    const Index rows = x.rows, each = x.places->each();
    std::vector<std::byte>& to = all_.emplace_back(
        static_cast<std::size_t>(rows * x.places->all()) * size + 8);  // not null where it is empty
    for (Index rank = 0; rank < g.size(); ++rank)
      for (Index r = 0; r < rows; ++r)
        for (Index t = 0; t < each; ++t)
          std::memcpy(
              to.data() +
                  static_cast<std::size_t>(r * x.places->all() + x.places->of(rank, t)) * size,
              all.data() + static_cast<std::size_t>(rank) * own_.size() + at +
                  static_cast<std::size_t>(r * each + t) * size,
              size);
    *x.data = to.data();
    at += static_cast<std::size_t>(rows * each) * size;
  }
}

}  // namespace posenc::inline v0::detail
