// SPDX-License-Identifier: Apache-2.0
// What a move of keys refuses, before it writes anything.
#include <cmath>
#include <limits>
#include <string>

#include "core/overlap.h"
#include "core/shape.h"
#include "posenc/core/error.h"
#include "positions/memory.h"
#include "positions/shared_row.h"
#include "rotary/rerotation_state.h"

namespace posenc::inline v0::detail {
namespace {

constexpr const char* kMove = "rerotate";

void check_keys(const RerotationState& s, const ConstHeads& h, std::string_view what) {
  const bool blocks = s.type == KeyType::q8_0;
  if (h.dtype != s.element())
    refuse_field(kMove, what,
                 blocks ? std::string("must be u8, the blocks of q8_0")
                        : "must be of the plan's type " + std::string(enum_text(s.type)),
                 dtype_name(h.dtype));
  const Index dim = blocks ? s.head_size() / kQ8Numbers * kQ8Bytes : s.head_size();
  if (h.dim != dim)
    refuse_field(kMove, what,
                 blocks ? "must have " + std::to_string(dim) + " bytes a head, of " +
                              std::to_string(s.head_size()) + " numbers"
                        : "must have the head size of the plan, " + std::to_string(dim),
                 h.dim);
  if (h.batch < 0 || h.tokens < 0 || h.heads < 0)
    refuse_field(kMove, what, "must not have negative sizes",
                 std::min(h.batch, std::min(h.tokens, h.heads)));
  if (blocks && h.dim_stride != 1)
    refuse_field(kMove, what, "must have the bytes of a head side by side, stride", h.dim_stride);
  const Index heads = StateAccess::of(s.stored).heads;
  if (heads > 1 && h.heads != heads)
    refuse_field(kMove, what,
                 "must have the heads of the spectrum, which is per head: " + std::to_string(heads),
                 h.heads);
  if (h.data == nullptr && h.batch * h.tokens * h.heads != 0)
    refuse_field(kMove, what, "must have memory for its elements, " + shape_text(h));
}

bool is_same_view(const ConstHeads& a, const ConstHeads& b) noexcept {
  return a.data == b.data && a.batch_stride == b.batch_stride && a.token_stride == b.token_stride &&
         a.head_stride == b.head_stride && a.dim_stride == b.dim_stride;
}

void check_key_tensors(const RerotationState& s, const ConstHeads& in, const Heads& out,
                       bool pages) {
  check_keys(s, in, pages ? "the pool" : "keys");
  if (in.data == out.data && is_same_view(in, out) && in.batch == out.batch &&
      in.tokens == out.tokens && in.heads == out.heads && in.dim == out.dim &&
      in.dtype == out.dtype) {
    check_no_self_overlap(kMove, {pages ? "the pool" : "keys", memory_of(out)});
    return;
  }
  check_keys(s, out, pages ? "the output pool" : "the output");
  const char* const name = pages ? "the output pool" : "the output";
  if (!pages && in.batch != out.batch)
    refuse_field(kMove, name, "must have the batch of keys, " + std::to_string(in.batch),
                 out.batch);
  if (in.tokens != out.tokens)
    refuse_field(
        kMove, name,
        (pages ? "must have the page size of the pool, " : "must have the tokens of keys, ") +
            std::to_string(in.tokens),
        out.tokens);
  if (in.heads != out.heads)
    refuse_field(kMove, name, "must have as many heads as its input, " + std::to_string(in.heads),
                 out.heads);
  check_no_self_overlap(kMove, {name, memory_of(out)});
  if (is_same_view(in, out)) return;  // pools of different sizes: check_pages
  detail::check_separate(kMove, {pages ? "the pool" : "keys", memory_of(in)},
                         {name, memory_of(out)});
}

// A set of page numbers [first, first + kWindow), in turns for all numbers.
class PageWindow {
 public:
  static constexpr Index kWindow = Index{1} << 16;
  explicit PageWindow(Index first) : first_(first) {}
  bool holds(Index page) const noexcept { return page >= first_ && page - first_ < kWindow; }
  bool has(Index page) const noexcept { return holds(page) && (word(page) & bit(page)) != 0; }
  void add(Index page) noexcept { words_[(page - first_) / 64] |= bit(page); }

 private:
  std::uint64_t word(Index page) const noexcept { return words_[(page - first_) / 64]; }
  std::uint64_t bit(Index page) const noexcept {
    return std::uint64_t{1} << ((page - first_) % 64);
  }
  Index first_;
  std::uint64_t words_[kWindow / 64] = {};
};

bool increases(std::span<const Index> pages) noexcept {
  for (std::size_t i = 1; i < pages.size(); ++i)
    if (pages[i] <= pages[i - 1]) return false;
  return true;
}

// No page is written twice, nor read by an entry and written by another.
void check_page_lists(std::span<const Index> in, std::span<const Index> out, Index size,
                      bool one_pool) {
  const bool same_list = in.data() == out.data();
  if (increases(out) && (same_list || !one_pool)) return;
  for (Index first = 0; first < size; first += PageWindow::kWindow) {
    PageWindow written(first);
    for (const Index page : out) {
      if (!written.holds(page)) continue;
      if (written.has(page)) refuse(kMove, "a page must not be written twice in one move", page);
      written.add(page);
    }
    for (std::size_t i = 0; i < in.size() && one_pool && !same_list; ++i)
      if (in[i] != out[i] && written.has(in[i]))
        refuse(kMove, "a page that an entry of the list writes must not be read by another", in[i]);
  }
}

void check_page_numbers(std::span<const Index> pages, Index size, const char* pool) {
  for (const Index page : pages)
    if (page < 0 || page >= size)
      refuse_field(kMove, "page numbers",
                   "must be within the " + std::to_string(size) + " pages of " + pool, page);
}

void check_pages(const KeyPages& p, const ConstHeads& in, const Heads& out) {
  check_page_numbers(p.pages, in.batch, "the pool");
  const std::span<const Index> written = p.out.empty() ? p.pages : p.out;
  if (written.size() != p.pages.size())
    refuse_field(
        kMove, "the list of output pages",
        "must have a page for each of the " + std::to_string(p.pages.size()) + " listed pages",
        static_cast<Index>(written.size()));
  check_page_numbers(written, out.batch, "the output pool");
  check_page_lists(p.pages, written, out.batch, is_same_view(in, out));
  if (!p.tokens.empty() && p.tokens.size() != p.pages.size())
    refuse_field(
        kMove, "tokens of pages",
        "must have a number for each of the " + std::to_string(p.pages.size()) + " listed pages",
        static_cast<Index>(p.tokens.size()));
  for (const Index n : p.tokens)
    if (n < 0 || n > in.tokens)
      refuse_field(kMove, "tokens of pages",
                   "must be from 0 to the page size of " + std::to_string(in.tokens), n);
}

// The rules of positions of one side.
struct PositionRule {
  const KeyCall& call;
  const RotarySpec& spec;
  const Positions& p;
  std::string name;
  bool by_group;

  void shape(bool pages) const {
    check_positions(p, kMove);
    if (p.type != DType::i64 && p.type != DType::i32 && p.type != DType::f64)
      refuse_field(kMove, name, "must be i64, i32 or f64", dtype_name(p.type));
    if (p.axes != spec.axes())
      refuse_field(kMove, name, "must have " + axes_text(spec.axes()), Index{p.axes});
    if (p.count != call.in.tokens && !(pages && p.count == 1))
      refuse_field(kMove, name,
                   pages ? "must be one a page, or one for each of the " +
                               std::to_string(call.in.tokens) + " slots of a page"
                         : "must be " + std::to_string(call.in.tokens),
                   p.count);
    if (p.batch != call.groups && p.batch != 1)
      refuse_field(kMove, name,
                   (pages ? "must have one row, or one for each of the listed pages: "
                          : "must have one row, or one for each of the batch of ") +
                       std::to_string(call.groups),
                   p.batch);
    if (p.data == nullptr && call.groups > 0 && call.in.tokens > 0)
      refuse_field(kMove, name, "must have memory");
    if (by_group && p.axes > 1 && !call.state.same)
      refuse_field(kMove, name,
                   "of the first slot of a page say too little if the rotation changes: axes need "
                   "not advance together. Give one for each slot, axes",
                   Index{p.axes});
  }
  [[noreturn, gnu::cold]] void beyond(double most, double got) const {
    if (got < most) refuse_field(kMove, name, "must be at least -2^37", got);
    refuse_field(kMove, name,
                 most == kMostKeyPosition
                     ? std::string("must be at most 2^37")
                     : "must be below " + std::to_string(static_cast<Index>(most)) +
                           ", the length up to which these frequencies hold",
                 got);
  }
  void values() const {
    const bool any = call.state.by_rows;  // any 64 bits
    const Index valid = spec.valid_to();
    if (any && valid == kUnbounded) return;
    for (Index g = 0; g < call.groups; ++g) {
      const Index n = call.tokens(g);
      for (Index a = 0; a < p.axes; ++a)
        for (Index t = 0; t < (by_group ? std::min<Index>(n, 1) : n); ++t) {
          const double first = real_position(p, a, g, t);
          const double last = first + static_cast<double>(by_group ? n - 1 : 0);
          if (!any && !(first >= -kMostKeyPosition && last <= kMostKeyPosition))
            beyond(kMostKeyPosition, last > kMostKeyPosition ? last : first);
          if (a == 0 && valid != kUnbounded && last >= static_cast<double>(valid))
            beyond(static_cast<double>(valid), last);
        }
    }
  }
};

}  // namespace

KeyCall check_key_call(const RerotationState& s, const ConstHeads& in, const Heads& out,
                       const KeyPages* pages, const Positions& old_positions,
                       const Positions& new_positions) {
  check_key_tensors(s, in, out, pages != nullptr);
  KeyCall c{s,    kernel_view({{}, in}).k,   out,
            true, shared_row(old_positions), shared_row(new_positions)};
  c.in_place = in.data == out.data && pages == nullptr;
  c.groups = in.batch;
  if (pages != nullptr) {
    check_pages(*pages, in, out);
    c.groups = static_cast<Index>(pages->pages.size());
    c.in_pages = pages->pages.data();
    c.out_pages = pages->out.empty() ? c.in_pages : pages->out.data();
    c.in_place = in.data == out.data && c.in_pages == c.out_pages;
    if (!pages->tokens.empty()) c.used = pages->tokens.data();
    c.old_first = old_positions.count == 1 && in.tokens != 1;
    c.new_first = new_positions.count == 1 && in.tokens != 1;
  }
  for (const bool old : {true, false}) {
    const PositionRule rule{
        c, old ? s.from.spec : s.to.spec, old ? c.old_positions : c.new_positions,
        old ? "old positions" : "new positions", old ? c.old_first : c.new_first};
    rule.shape(pages != nullptr);
    rule.values();
    check_positions_apart(kMove, rule.p, {{"keys", memory_of(ConstHeads(out))}});
  }
  return c;
}

void check_range(const KeyCall& c) {
  struct Limits {
    double most, least;
  };
  // The largest number and the smallest normal one of f64, f32, f16 and bf16.
  static constexpr Limits kLimits[] = {{std::numeric_limits<double>::max(), 0x1p-1022},
                                       {0x1.fffffep127, 0x1p-126},
                                       {65504, 0x1p-14},
                                       {0x1.fep127, 0x1p-126}};
  const Limits limit = kLimits[static_cast<std::size_t>(c.state.type)];
  std::vector<double> row(static_cast<std::size_t>(StateAccess::of(c.state.stored).row_columns));
  KeyChunk chunk;
  KeyRows rows(c.state.from, c.state.to, *c.state.rows);
  const auto check_pair = [&](const Heads& h, Index at, const RotaryTables& t, const double* cosine,
                              const double* sine, Index i, Index token) {
    const bool half = t.pairing == Pairing::half_split;
    const Index first = t.offset + (half ? i : 2 * i), second = first + (half ? t.pairs : 1);
    const double a = float_element(h.data, h.dtype, at + first * h.dim_stride);
    const double b = float_element(h.data, h.dtype, at + second * h.dim_stride);
    const double u = a * *cosine - b * *sine, v = a * *sine + b * *cosine;
    const double length = std::hypot(a, b), moved = std::hypot(u, v);
    if (!std::isfinite(length)) return;
    const bool above = !(std::max(std::fabs(u), std::fabs(v)) <= limit.most);
    if (above || (length >= limit.least && moved < limit.least))
      refuse(kMove,
             "keys of xPos must stay in the range of " + std::string(enum_text(c.state.type)) +
                 ": pair " + std::to_string(i) + " of token " + std::to_string(token) +
                 " would get the length",
             moved);
  };
  for (Index g = 0; g < c.groups; ++g) {
    const Index page = c.in_pages != nullptr ? c.in_pages[g] : g;
    for (Index first = 0; first < c.tokens(g); first += kKeyTokens) {
      chunk.read(c, g, first, std::min(kKeyTokens, c.tokens(g) - first));
      rows.old_positions = chunk.from, rows.new_positions = chunk.to;
      for (Index t = 0; t < chunk.n; ++t) {
        rows.row(t, row.data());
        const double* at = row.data();
        for (const RotaryTables& b : StateAccess::of(c.state.stored).tables) {
          for (Index h = 0; h < c.in.heads; ++h)
            for (Index i = 0; i < b.pairs; ++i) {
              const Index column = (b.heads > 1 ? h : 0) * b.pairs + i;
              check_pair(
                  c.in,
                  page * c.in.batch_stride + (first + t) * c.in.token_stride + h * c.in.head_stride,
                  b, at + column, at + b.heads * b.pairs + column, i, first + t);
            }
          at += 2 * b.heads * b.pairs;
        }
      }
    }
  }
}

}  // namespace posenc::v0::detail
