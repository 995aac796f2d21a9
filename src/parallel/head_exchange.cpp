// SPDX-License-Identifier: Apache-2.0
#include "parallel/head_exchange.h"

#include <algorithm>
#include <cstring>

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
template <class Data>
BasicHeads<Data> block_of(const BasicHeads<Data>& h, Index rank, Index ranks) {
  return slice_heads(h, rank * (h.heads / ranks), h.heads / ranks);
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

TokenPlaces::TokenPlaces(const Group& group, const ConstTensorView& order)
    : each_(order.empty() ? 0 : order.shape[1]), ranks_(group.size()) {
  std::vector<Index> own;
  for (Index t = 0; t < each_; ++t) own.push_back(read_index(order, 0, t));
  place_.resize(static_cast<std::size_t>(all()));
  const std::vector<std::byte> bytes = gather(group, std::as_bytes(std::span(own)));
  if (place_.empty()) return;
  std::memcpy(place_.data(), bytes.data(), bytes.size());
  first_ = *std::min_element(place_.begin(), place_.end());
  std::vector<bool> seen(place_.size());
  for (Index& p : place_) {
    p -= first_;
    if (p >= all() || seen[static_cast<std::size_t>(p)])
      refuse("ulysses", "the orders of all ranks' tokens must count up without gaps", p + first_);
    seen[static_cast<std::size_t>(p)] = true;
  }
}

Heads exchange_heads(const Group& g, const TokenPlaces& places, const ConstHeads& own,
                     PacketBytes& memory) {
  const ConstHeads block = block_of(own, 0, g.size());
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

std::vector<std::byte> gather_rows(const Group& g, const TokenPlaces& places,
                                   std::span<const std::byte> own, Index rows, Index element) {
  const std::vector<std::byte> all = gather(g, own);
  std::vector<std::byte> sorted(all.size() + 8);
  const auto size = static_cast<std::size_t>(element);
  for (Index rank = 0; rank < g.size(); ++rank)
    for (Index r = 0; r < rows; ++r)
      for (Index t = 0; t < places.each(); ++t)
        std::memcpy(
            sorted.data() + static_cast<std::size_t>(r * places.all() + places.of(rank, t)) * size,
            all.data() + static_cast<std::size_t>((rank * rows + r) * places.each() + t) * size,
            size);
  return sorted;
}

}  // namespace posenc::inline v0::detail
