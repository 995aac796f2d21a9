// SPDX-License-Identifier: Apache-2.0
#include "posenc/absolute/embed.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "absolute/embed_call.h"
#include "absolute/names.h"
#include "core/element.h"
#include "core/overlap.h"
#include "core/parallel.h"
#include "core/shape.h"
#include "kernels/embed_rows.h"
#include "posenc/core/error.h"

namespace posenc::inline v0 {
namespace detail {
namespace {

LineDoubles vector_of(const ConstTensorView& v, DType dtype, Index width, const char* what,
                      double missing) {
  LineDoubles out(width);
  if (v.empty()) {
    std::fill_n(out.data(), width, missing);
    return out;
  }
  if (v.dtype != dtype || v.rank != 1 || v.shape[0] != width || v.device != Device::cpu)
    detail::refuse_shape(kEmbed, what,
                         "must be [" + std::to_string(width) + "] of the dtype of y, " +
                             std::string(dtype_name(dtype)),
                         v);
  for (Index c = 0; c < width; ++c) out.data()[c] = float_element(v.data, dtype, c * v.stride[0]);
  return out;
}

// The rows of ids that have one, in the order of the ids; the first that has none is refused.
template <class Id>
void add_rows(const EmbedPart& p, const Id* ids, Index stride, Index tokens,
              std::vector<Index>& row) {
  const Index n = p.table.shape[0];
  for (Index t = 0; t < tokens; ++t) {
    const auto id = static_cast<Index>(ids[t * stride]);
    Index r = 0;
    if (__builtin_add_overflow(id, p.offset, &r) || r < 0 || r >= n)
      refuse(kEmbed,
             std::string("an id ") +
                 (p.offset == 0 ? "" : "plus the offset of " + std::to_string(p.offset) + " ") +
                 "must have a row in its table of " + std::to_string(n),
             id);
    row.push_back(r);
  }
}

std::vector<Index> looked_up(const EmbedPart& p, const EmbedCall& c) {
  if (p.table.rank != 2 || p.table.shape[1] != c.width || p.table.dtype != c.dtype ||
      p.table.device != Device::cpu || (p.table.stride[1] != 1 && c.width > 1))
    detail::refuse_shape(kEmbed,
                         "a table must be [n, " + std::to_string(c.width) +
                             "] of the dtype of y, " + std::string(dtype_name(c.dtype)) +
                             ", channels together",
                         p.table);
  const ConstTensorView& i = p.ids;
  if (i.dtype != DType::i64 && i.dtype != DType::i32)
    refuse_field(kEmbed, "ids", "must be i64 or i32", dtype_name(i.dtype));
  if (i.device != Device::cpu) refuse_field(kEmbed, "ids", "must be in the CPU's memory");
  if ((i.rank != 1 && i.rank != 2) || i.shape[i.rank == 1 ? 0 : 1] != c.tokens ||
      (i.rank == 2 && i.shape[0] != 1 && i.shape[0] != c.batch))
    detail::refuse_shape(kEmbed, "ids",
                         "must be " + detail::sizes_text({c.tokens}) + " or " +
                             detail::sizes_text({c.batch, c.tokens}),
                         i);
  std::vector<Index> row;
  row.reserve(static_cast<std::size_t>(c.count()));
  const Index n = p.table.shape[0];
  if (p.frozen && (*p.frozen < 0 || *p.frozen >= n))
    refuse_field(kEmbed, "frozen", "must be a row of the table of " + std::to_string(n), *p.frozen);
  if (c.count() == 0) return row;  // ids may be null
  const bool one = i.rank == 1 || i.shape[0] == 1;
  const Index stride = i.stride[i.rank == 1 ? 0 : 1];
  for (Index b = 0; b < c.batch; ++b) {
    const Index at = one ? 0 : b * i.stride[0];
    if (i.dtype == DType::i64)
      add_rows(p, static_cast<const std::int64_t*>(i.data) + at, stride, c.tokens, row);
    else
      add_rows(p, static_cast<const std::int32_t*>(i.data) + at, stride, c.tokens, row);
  }
  return row;
}

}  // namespace

namespace {

template <class Data>
auto token_bytes(const BasicTensorView<Data>& v, Index batch, Index tokens, Index width,
                 const char* what) {
  using Byte = std::conditional_t<std::is_const_v<Data>, const std::byte, std::byte>;
  const std::string who(what);
  if (v.device != Device::cpu) refuse_field(kEmbed, who, "must be in the CPU's memory");
  if (v.rank != 2 && v.rank != 3)
    detail::refuse_shape(kEmbed, who, "must be [t, c] or [b, t, c]", v);
  const auto last = static_cast<std::size_t>(v.rank - 1);
  if (v.shape[last] != width || v.shape[last - 1] != tokens ||
      (v.rank == 3 && v.shape[0] != batch && v.shape[0] != 1) || (v.stride[last] != 1 && width > 1))
    detail::refuse_shape(kEmbed, who,
                         "must have the tokens and width of y, " +
                             detail::sizes_text({batch, tokens, width}) + ", channels together",
                         v);
  const Index size = size_of(v.dtype);
  return BasicEmbedTokens<Byte>{static_cast<Byte*>(v.data),
                                v.rank == 3 && v.shape[0] != 1 ? v.stride[0] * size : 0,
                                v.stride[last - 1] * size};
}

}  // namespace

EmbedTokens embed_tokens(const TensorView& v, Index batch, Index tokens, Index width,
                         const char* what) {
  return token_bytes(v, batch, tokens, width, what);
}
ConstEmbedTokens embed_tokens(const ConstTensorView& v, Index batch, Index tokens, Index width,
                              const char* what) {
  return token_bytes(v, batch, tokens, width, what);
}

namespace {

// Given rows differ from token to token as the longest table's do; what the batch shares does not.
void set_order(EmbedCall& c) {
  std::size_t first = 0;
  Index most = -1;
  for (std::size_t n = 0; n < c.scale.size(); ++n) {
    const bool shared = c.is_shared(n);
    const Index rows = shared ? 0 : c.row[n].empty() ? c.count() : c.parts[n].table.shape[0];
    c.shared = c.shared || (shared && c.batch > 1);
    if (rows > most) first = n, most = rows;
  }
  c.order.push_back(first);
  for (std::size_t n = 0; n < c.scale.size(); ++n)
    if (n != first) c.order.push_back(n);
  for (const std::size_t n : c.order) c.weight.push_back(c.scale[n]);
}

}  // namespace

EmbedCall check_embed(std::span<const EmbedPart> parts, const std::optional<EmbedNorm>& norm,
                      const ConstTensorView& y, const std::string& what) {
  if (parts.empty()) refuse(kEmbed, "there must be a part");
  if (!is_float(y.dtype))
    refuse_field(kEmbed, what, "must be f64, f32, f16 or bf16", dtype_name(y.dtype));
  if (y.rank != 2 && y.rank != 3)
    detail::refuse_shape(kEmbed, what, "must be [t, c] or [b, t, c]", y);
  EmbedCall c;
  c.dtype = y.dtype;
  c.batch = y.rank == 3 ? y.shape[0] : 1;
  c.tokens = y.shape[static_cast<std::size_t>(y.rank - 2)];
  c.width = y.shape[static_cast<std::size_t>(y.rank - 1)];
  if (c.width < 1) refuse_field(kEmbed, "width", "must be positive", c.width);
  if (c.batch < 0 || c.tokens < 0)
    detail::refuse_shape(kEmbed, "sizes of " + what + " must not be negative", y);
  c.y = embed_tokens(y, c.batch, c.tokens, c.width, what.c_str());
  c.parts = parts.data();
  for (const EmbedPart& p : parts) {
    if (!std::isfinite(p.scale)) refuse_field(kEmbed, "scale", "must be finite", p.scale);
    c.scale.push_back(p.scale);
    c.row.emplace_back();
    c.given.emplace_back();
    if (is_given(p.table) == is_given(p.rows) || is_given(p.table) != is_given(p.ids))
      refuse(kEmbed, "a part must have a table and ids, or rows");
    if (!is_given(p.rows)) {
      c.row.back() = looked_up(p, c);
      continue;
    }
    if (p.rows.dtype != c.dtype)
      refuse_field(kEmbed, "rows", "must be of the dtype of " + what, dtype_name(p.rows.dtype));
    c.given.back() = embed_tokens(p.rows, c.batch, c.tokens, c.width, "rows");
  }
  set_order(c);
  if (!norm) return c;
  c.has_norm = true;
  if (!(norm->epsilon >= 0) || !std::isfinite(norm->epsilon))
    refuse_field(kEmbed, "epsilon", "must be finite and not negative", norm->epsilon);
  c.epsilon = norm->epsilon;
  if (norm->gamma.empty() && norm->beta.empty()) return c;
  c.gamma = vector_of(norm->gamma, c.dtype, c.width, "gamma", 1);
  c.beta = vector_of(norm->beta, c.dtype, c.width, "beta", 0);
  return c;
}

bool EmbedCall::is_shared(std::size_t part) const noexcept {
  if (row[part].empty()) return given[part].batch_bytes == 0;
  const ConstTensorView& ids = parts[part].ids;
  return ids.rank == 1 || ids.shape[0] == 1;
}

void EmbedCall::rows_of(Index token, const void** rows) const noexcept {
  for (const std::size_t n : order) {
    if (row[n].empty()) {
      *rows++ = given[n].at(token / tokens, token % tokens);
      continue;
    }
    const ConstTensorView& t = parts[n].table;
    *rows++ = static_cast<const std::byte*>(t.data) +
              row[n][static_cast<std::size_t>(token)] * t.stride[0] * size_of(dtype);
  }
}

}  // namespace detail

namespace {

constexpr Index kRun = 64;  // tokens whose rows are listed at once

// What a task needs: rows and outputs of a run of tokens, and the kernel's scratch.
struct TaskScratch {
  std::vector<const void*> rows;
  std::vector<void*> out;
  detail::LineDoubles sums;
  explicit TaskScratch(const detail::EmbedCall& c)
      : rows(static_cast<std::size_t>((kRun + detail::kEmbedAhead) * c.part_count())),
        out(kRun),
        sums(detail::embed_scratch(c.width)) {}
};

// Tokens [begin, end).
void embed_tokens_of(const detail::EmbedCall& c, const detail::EmbedTokens& to, bool stream,
                     const detail::EmbedKernels& kernels, Index begin, Index end,
                     TaskScratch& scratch) noexcept {
  const Index last = c.width * size_of(c.dtype) - 1;
  const auto at = [](Index i) { return static_cast<std::size_t>(i); };
  for (Index i = begin; i < end; i += kRun) {
    const Index tokens = std::min(kRun, end - i);
    for (Index k = 0; k < tokens + detail::kEmbedAhead; ++k)
      c.rows_of(c.token(std::min(i + k, end - 1)), scratch.rows.data() + k * c.part_count());
    // Rows and outputs lie on pages anywhere. A core waits at a prefetch or a store until its page is
    // found: those of the run are found side by side. (No function: GCC drops one that prefetches.)
    for (Index k = 0; k < tokens + detail::kEmbedAhead; ++k) {
      const auto* row = static_cast<const std::byte*>(scratch.rows[at(k * c.part_count())]);
      __builtin_prefetch(row, 0, 2), __builtin_prefetch(row + last, 0, 2);
    }
    for (Index k = 0; k < tokens; ++k) {
      const Index token = c.token(i + k);
      void* out = to.at(token / c.tokens, token % c.tokens);
      __builtin_prefetch(out, 1, 2);
      scratch.out[at(k)] = out;
    }
    kernels.rows({scratch.rows.data(), scratch.out.data(), c.weight.data(), c.part_count(), tokens,
                  c.width, c.has_norm, stream, c.epsilon,
                  c.gamma.empty() ? nullptr : c.gamma.data(),
                  c.beta.empty() ? nullptr : c.beta.data(), scratch.sums.data()});
  }
}

// Whether y is large and all its rows are whole lines of the cache.
bool is_streamed(const detail::EmbedCall& c, const detail::EmbedTokens& y) {
  constexpr Index kLine = 64;
  const auto at = static_cast<Index>(reinterpret_cast<std::uintptr_t>(y.data));
  const Index row = c.width * size_of(c.dtype);
  return c.count() * row > detail::kStreamRowBytes &&
         ((at | y.batch_bytes | y.token_bytes | row) & (kLine - 1)) == 0;
}

}  // namespace

void embed(std::span<const EmbedPart> parts, const std::optional<EmbedNorm>& norm,
           const TensorView& y, const Executor& executor) {
  const detail::EmbedCall call = detail::check_embed(parts, norm, y, "y");
  if (call.count() == 0) return;
  // Ids, gamma and beta were read already; given rows of a token are read before it is written.
  const detail::Operand out{"y", detail::memory_of(y)};
  detail::check_no_self_overlap("embed", out);
  for (const EmbedPart& p : parts) {
    detail::check_separate("embed", {"a table", detail::memory_of(p.table)}, out);
    detail::check_in_place("embed", {"rows", detail::memory_of(p.rows)}, out);
  }
  const Index most = call.count() * call.width / detail::kValuesPerTask;
  const auto tasks = static_cast<std::size_t>(detail::task_count(executor, call.count(), most));
  const detail::EmbedTokens to = detail::embed_tokens(y, call.batch, call.tokens, call.width, "y");
  const detail::EmbedKernels& kernels = detail::embed_kernels(active_isa(), call.dtype);
  const bool stream = is_streamed(call, to);
  std::vector<TaskScratch> scratch;
  for (std::size_t i = 0; i < tasks; ++i) scratch.emplace_back(call);
  detail::parallel_for(executor, call.count(), most,
                       [&](Index begin, Index end, Index task) noexcept {
                         embed_tokens_of(call, to, stream, kernels, begin, end,
                                         scratch[static_cast<std::size_t>(task)]);
                       });
}

}  // namespace posenc::v0
