// SPDX-License-Identifier: Apache-2.0
#include "posenc/absolute/embed.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absolute/embed_call.h"
#include "core/element.h"
#include "core/overlap.h"
#include "core/parallel.h"
#include "core/shape.h"
#include "kernels/norm.h"
#include "posenc/core/error.h"

namespace posenc::inline v0 {
namespace detail {
namespace {

constexpr const char* kWho = "embed";

std::vector<double> vector_of(const ConstTensorView& v, DType dtype, Index width, const char* what,
                              double missing) {
  if (v.empty()) return std::vector<double>(static_cast<std::size_t>(width), missing);
  if (v.dtype != dtype || v.rank != 1 || v.shape[0] != width || v.device != Device::cpu)
    detail::refuse_shape(kWho,
                         std::string(what) + " must be [" + std::to_string(width) +
                             "] of the dtype of y, " + std::string(dtype_name(dtype)),
                         v);
  std::vector<double> out;
  for (Index c = 0; c < width; ++c) out.push_back(float_element(v.data, dtype, c * v.stride[0]));
  return out;
}

Index id_at(const ConstTensorView& ids, Index b, Index t) {
  const Index at = ids.rank == 1 ? t * ids.stride[0] : b * ids.stride[0] + t * ids.stride[1];
  return integer_element(ids.data, ids.dtype, at);
}

std::vector<Index> looked_up(const EmbedPart& p, const EmbedCall& c) {
  if (p.table.rank != 2 || p.table.shape[1] != c.width || p.table.dtype != c.dtype ||
      p.table.device != Device::cpu || (p.table.stride[1] != 1 && c.width > 1))
    detail::refuse_shape(kWho,
                         "a table must be [n, " + std::to_string(c.width) +
                             "] of the dtype of y, " + std::string(dtype_name(c.dtype)) +
                             ", channels together",
                         p.table);
  const ConstTensorView& i = p.ids;
  if (i.dtype != DType::i64 && i.dtype != DType::i32)
    refuse(kWho, "ids must be i64 or i32", dtype_name(i.dtype));
  if (i.device != Device::cpu) refuse(kWho, "ids must be in the CPU's memory");
  if ((i.rank != 1 && i.rank != 2) || i.shape[i.rank == 1 ? 0 : 1] != c.tokens ||
      (i.rank == 2 && i.shape[0] != 1 && i.shape[0] != c.batch))
    detail::refuse_shape(kWho,
                         "ids must be " + detail::sizes_text({c.tokens}) + " or " +
                             detail::sizes_text({c.batch, c.tokens}),
                         i);
  std::vector<Index> row;
  row.reserve(static_cast<std::size_t>(c.count()));
  const Index n = p.table.shape[0];
  if (p.frozen && (*p.frozen < 0 || *p.frozen >= n))
    refuse(kWho, "frozen must be a row of the table of " + std::to_string(n), *p.frozen);
  for (Index b = 0; b < c.batch; ++b)
    for (Index t = 0; t < c.tokens; ++t) {
      const Index id = id_at(i, i.rank == 2 && i.shape[0] == 1 ? 0 : b, t);
      Index r = 0;
      if (__builtin_add_overflow(id, p.offset, &r) || r < 0 || r >= n)
        refuse(kWho,
               std::string("an id ") +
                   (p.offset == 0 ? "" : "plus the offset of " + std::to_string(p.offset) + " ") +
                   "must have a row in its table of " + std::to_string(n),
               id);
      row.push_back(r);
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
  if (v.device != Device::cpu) refuse(kWho, who + " must be in the CPU's memory");
  if (v.rank != 2 && v.rank != 3)
    detail::refuse_shape(kWho, who + " must be [t, c] or [b, t, c]", v);
  const auto last = static_cast<std::size_t>(v.rank - 1);
  if (v.shape[last] != width || v.shape[last - 1] != tokens ||
      (v.rank == 3 && v.shape[0] != batch && v.shape[0] != 1) || (v.stride[last] != 1 && width > 1))
    detail::refuse_shape(kWho,
                         who + " must have the tokens and width of y, " +
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

EmbedCall check_embed(std::span<const EmbedPart> parts, const std::optional<EmbedNorm>& norm,
                      const ConstTensorView& y, const std::string& what) {
  if (parts.empty()) refuse(kWho, "there must be a part");
  if (!is_float(y.dtype))
    refuse(kWho, what + " must be f64, f32, f16 or bf16", dtype_name(y.dtype));
  if (y.rank != 2 && y.rank != 3)
    detail::refuse_shape(kWho, what + " must be [t, c] or [b, t, c]", y);
  EmbedCall c;
  c.dtype = y.dtype;
  c.batch = y.rank == 3 ? y.shape[0] : 1;
  c.tokens = y.shape[static_cast<std::size_t>(y.rank - 2)];
  c.width = y.shape[static_cast<std::size_t>(y.rank - 1)];
  if (c.width < 1) refuse(kWho, "width must be positive", c.width);
  if (c.batch < 0 || c.tokens < 0)
    detail::refuse_shape(kWho, "sizes of " + what + " must not be negative", y);
  c.y = embed_tokens(y, c.batch, c.tokens, c.width, what.c_str());
  c.parts = parts.data();
  for (const EmbedPart& p : parts) {
    if (!std::isfinite(p.scale)) refuse(kWho, "scale must be finite", p.scale);
    c.scale.push_back(p.scale);
    c.row.emplace_back();
    c.given.emplace_back();
    if (is_given(p.table) == is_given(p.rows) || is_given(p.table) != is_given(p.ids))
      refuse(kWho, "a part must have a table and ids, or rows");
    if (!is_given(p.rows)) {
      c.row.back() = looked_up(p, c);
      continue;
    }
    if (p.rows.dtype != c.dtype)
      refuse(kWho, "rows must be of the dtype of " + what, dtype_name(p.rows.dtype));
    c.given.back() = embed_tokens(p.rows, c.batch, c.tokens, c.width, "rows");
  }
  if (!norm) return c;
  if (!(norm->epsilon >= 0) || !std::isfinite(norm->epsilon))
    refuse(kWho, "epsilon must be finite and not negative", norm->epsilon);
  c.epsilon = norm->epsilon;
  c.gamma = vector_of(norm->gamma, c.dtype, c.width, "gamma", 1);
  c.beta = vector_of(norm->beta, c.dtype, c.width, "beta", 0);
  return c;
}

void EmbedCall::rows_of(Index token, const void** rows) const noexcept {
  for (std::size_t n = 0; n < scale.size(); ++n) {
    if (row[n].empty()) {
      rows[n] = given[n].at(token / tokens, token % tokens);
      continue;
    }
    const ConstTensorView& t = parts[n].table;
    rows[n] = static_cast<const std::byte*>(t.data) +
              row[n][static_cast<std::size_t>(token)] * t.stride[0] * size_of(dtype);
  }
}

void EmbedCall::sum(const WeightedSumKernels& k, Index token, double* out,
                    const void** rows) const noexcept {
  rows_of(token, rows);
  k.into_f64(dtype)({rows, scale.data(), part_count(), width, out});
}

}  // namespace detail

namespace {

// Rows of words lie where no prefetcher of the machine guesses them.
void prefetch_rows(const detail::EmbedCall& c, Index token, const void** rows) noexcept {
  constexpr Index kLine = 64;
  c.rows_of(token, rows);
  const Index bytes = c.width * size_of(c.dtype);
  for (Index n = 0; n < c.part_count(); ++n)
    for (Index at = 0; at < bytes; at += kLine)
      __builtin_prefetch(static_cast<const std::byte*>(rows[n]) + at);
}

// Tokens [begin, end). sum: width + kRowPadding; rows: twice part_count().
void embed_tokens_of(const detail::EmbedCall& c, const detail::EmbedTokens& out, Isa isa,
                     Index begin, Index end, double* sum, const void** rows) noexcept {
  const detail::NormKernels& norm = detail::norm_kernels(isa);
  const detail::RowKernels& narrow = detail::row_kernels(isa);
  const detail::WeightedSumKernels& kernels = detail::weighted_sum_kernels(isa);
  const bool direct = !c.has_norm() && size_of(c.dtype) > 2;
  const auto add = !direct                 ? kernels.into_f64(c.dtype)
                   : c.dtype == DType::f64 ? kernels.f64_f64
                                           : kernels.f32_f32;
  const void** next = rows + c.part_count();
  c.rows_of(begin, rows);
  for (Index i = begin; i < end; ++i) {
    if (i + 1 < end) prefetch_rows(c, i + 1, next);
    std::byte* y = out.at(i / c.tokens, i % c.tokens);
    add({rows, c.scale.data(), c.part_count(), c.width, direct ? y : static_cast<void*>(sum)});
    std::swap(rows, next);
    if (direct) continue;
    const double *gamma = c.gamma.data(), *beta = c.beta.data();
    if (c.has_norm() && c.dtype == DType::f32) {
      norm.forward_f32(sum, c.width, c.epsilon, gamma, beta, reinterpret_cast<float*>(y));
      continue;
    }
    if (c.has_norm()) norm.forward(sum, c.width, c.epsilon, gamma, beta, sum);
    detail::narrow_row(narrow, sum, c.dtype, c.width, y);
  }
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
  const Isa isa = active_isa();
  const Index most = call.count() * call.width / detail::kValuesPerTask;
  const auto tasks = static_cast<std::size_t>(detail::task_count(executor, call.count(), most));
  const detail::EmbedTokens to = detail::embed_tokens(y, call.batch, call.tokens, call.width, "y");
  const Index pitch = call.width + detail::kRowPadding;
  std::vector<double> sum(tasks * static_cast<std::size_t>(pitch));
  std::vector<const void*> rows(2 * tasks * call.scale.size());
  detail::parallel_for(executor, call.count(), most,
                       [&](Index begin, Index end, Index task) noexcept {
                         embed_tokens_of(call, to, isa, begin, end, sum.data() + task * pitch,
                                         rows.data() + 2 * task * call.part_count());
                       });
}

}  // namespace posenc::v0
