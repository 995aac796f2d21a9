// SPDX-License-Identifier: Apache-2.0
#include "posenc/positions/omni.h"

#include <algorithm>
#include <array>

#include "positions/vision_grids.h"

namespace posenc::inline v0 {
namespace {

constexpr std::string_view kOmni = "omni";
using OmniToken = std::array<double, 3>;

void check_rule(const OmniRule& r) {
  if (r.merge < 1) refuse_field(kOmni, "merge", "must be positive", r.merge);
  if (!std::isfinite(r.positions_per_second) || r.positions_per_second <= 0)
    refuse_field(kOmni, "positions_per_second", "must be finite and positive",
                 r.positions_per_second);
  if (r.interleave != SoundInterleave::by_chunk) return;
  const double chunk = r.positions_per_second * r.seconds_per_chunk;
  if (!(chunk >= 1) || chunk > 0x1p31)
    refuse(kOmni, "a chunk must have 1 to 2^31 positions", chunk);
}

// The tokens of a row as they are met.
class OmniRow {
 public:
  OmniRow(const OmniRule& rule, std::vector<Index> types) : rule_(rule), types_(std::move(types)) {}

  std::vector<OmniToken> built(VisionGrids& images, VisionGrids& videos);

 private:
  struct Order {  // of a video and its sound
    std::vector<bool> video;
    std::size_t last_piece = 0;
  };

  // What the program holds a position in: float32 where it is a real number.
  double held(double x) const {
    return rule_.whole_positions ? x : static_cast<double>(static_cast<float>(x));
  }
  std::size_t end_of(std::size_t from, bool (*same)(Index)) const {
    while (from < types_.size() && same(types_[from])) ++from;
    return from;
  }
  void put(double p) { out_.push_back({p, p, p}); }
  void text(std::size_t count, bool ends_a_piece);
  void marks(std::size_t count, bool shared);
  void text_run(std::size_t end);
  std::vector<OmniToken> frames(const VisionGrid&) const;
  using Times = std::vector<double>;
  Order order_of(const Times& video, const Times& sound, double start) const;
  std::vector<std::size_t> chunk_ends(const Times& at, double start) const;
  void vision(const VisionGrid&, std::size_t end);
  void video_with_sound(const VisionGrid&, std::size_t end);
  void go_on_behind(std::size_t from);

  const OmniRule& rule_;
  std::vector<Index> types_;
  std::vector<OmniToken> out_;
  double next_ = 0;
  bool opened_ = false;      // the text before opened a span
  std::size_t closing_ = 0;  // marks that close it
  bool closing_shared_ = false;
};

bool is_text(Index t) {
  return t == 0;
}
bool is_image(Index t) {
  return t == 1;
}
bool is_video_or_sound(Index t) {
  return t == 2 || t == 3;
}

// Consecutive tokens. The program goes on at start + count, or at the largest + 1: the same but
// for the rounding of float32.
void OmniRow::text(std::size_t count, bool ends_a_piece) {
  if (count == 0) return;
  const double start = next_;
  for (std::size_t i = 0; i < count; ++i) put(held(start + static_cast<double>(i)));
  next_ = ends_a_piece ? held(out_.back()[0] + 1) : held(start + static_cast<double>(count));
}

void OmniRow::marks(std::size_t count, bool shared) {
  if (!shared) return text(count, true);
  for (std::size_t i = 0; i < count; ++i) put(next_);
  next_ = held(next_ + 1);
}

// Text between spans: what closes the one before, the text, what opens the one behind.
void OmniRow::text_run(std::size_t end) {
  const std::size_t from = out_.size();
  std::size_t opening = 0;
  bool with_sound = false;
  if (end < types_.size()) {
    const std::size_t span = end_of(end, types_[end] == 1 ? is_image : is_video_or_sound);
    for (std::size_t i = end; i < span; ++i) with_sound = with_sound || types_[i] != types_[end];
    opening = with_sound ? 2 : 1;
  }
  if (end - from < closing_ + opening)
    refuse(kOmni,
           "images, videos and sounds must have the tokens that open and close them, text tokens",
           static_cast<Index>(end - from));
  if (closing_ > 0) marks(closing_, closing_shared_);
  text(end - from - closing_ - opening, false);
  if (with_sound && rule_.shared_marks)
    marks(opening, true);
  else
    text(opening, false);
  opened_ = opening > 0;
  closing_ = opening;
  closing_shared_ = with_sound && rule_.shared_marks;
}

std::vector<OmniToken> OmniRow::frames(const VisionGrid& g) const {
  std::vector<OmniToken> v;
  for (Index f = 0; f < g.frames; ++f) {
    // The program's order of operations, in float32.
    const auto f32 = [](double x) { return static_cast<double>(static_cast<float>(x)); };
    double time =
        f32(f32(static_cast<double>(f) * f32(g.seconds)) * f32(rule_.positions_per_second));
    if (!(time < 0x1p53)) refuse_field(kOmni, "times", "must be finite and below 2^53, time", time);
    if (rule_.whole_positions) time = std::trunc(time);
    for (Index r = 0; r < g.rows / rule_.merge; ++r)
      for (Index c = 0; c < g.columns / rule_.merge; ++c)
        v.push_back({held(next_ + time), held(next_ + static_cast<double>(r)),
                     held(next_ + static_cast<double>(c))});
  }
  return v;
}

void OmniRow::go_on_behind(std::size_t from) {
  double largest = next_;
  for (std::size_t i = from; i < out_.size(); ++i)
    largest = std::max({largest, out_[i][0], out_[i][1], out_[i][2]});
  next_ = held(largest + 1);
}

void OmniRow::vision(const VisionGrid& g, std::size_t end) {
  const double need = merged_tokens(g, rule_.merge);
  const std::size_t from = out_.size();
  if (need != static_cast<double>(end - from))
    refuse(kOmni, "a grid must fill its run of tokens, grid of", need);
  const std::vector<OmniToken> tokens = frames(g);
  out_.insert(out_.end(), tokens.begin(), tokens.end());
  go_on_behind(from);
}

// Where the chunks of a list end. A new one begins at the first token at or behind its time; one
// token begins one chunk at most, so that a long step leaves chunks of a single token behind it.
std::vector<std::size_t> OmniRow::chunk_ends(const Times& at, double start) const {
  const double length = std::trunc(rule_.positions_per_second * rule_.seconds_per_chunk);
  std::vector<std::size_t> ends;
  for (std::size_t i = 0; i < at.size(); ++i)
    if (at[i] - start >= static_cast<double>(ends.size() + 1) * length) ends.push_back(i);
  ends.push_back(at.size());
  return ends;
}

OmniRow::Order OmniRow::order_of(const Times& video, const Times& sound, double start) const {
  Order order;
  const auto piece = [&](std::size_t count, bool is_video) {
    order.last_piece = order.video.size();
    order.video.insert(order.video.end(), count, is_video);
  };
  if (rule_.interleave == SoundInterleave::by_chunk) {
    const std::vector<std::size_t> v = chunk_ends(video, start), s = chunk_ends(sound, start);
    for (std::size_t j = 0; j < std::max(v.size(), s.size()); ++j) {
      if (j < v.size()) piece(v[j] - (j == 0 ? 0 : v[j - 1]), true);
      if (j < s.size()) piece(s[j] - (j == 0 ? 0 : s[j - 1]), false);
    }
    return order;
  }
  std::size_t v = 0, s = 0;
  while (v < video.size() && s < sound.size()) {
    const bool frame_first = video[v] <= sound[s];
    piece(1, frame_first);
    ++(frame_first ? v : s);
  }
  piece(video.size() + sound.size() - v - s, v < video.size());
  return order;
}

void OmniRow::video_with_sound(const VisionGrid& g, std::size_t end) {
  const std::size_t from = out_.size();
  const auto sounds =
      static_cast<std::size_t>(std::count(types_.begin() + static_cast<std::ptrdiff_t>(from),
                                          types_.begin() + static_cast<std::ptrdiff_t>(end), 3));
  if (merged_tokens(g, rule_.merge) != static_cast<double>(end - from - sounds))
    refuse(kOmni, "a grid must fill the video tokens of its run, grid of",
           merged_tokens(g, rule_.merge));
  const std::vector<OmniToken> video = frames(g);
  // Two orders, as the peer has them: its processor lays the tokens by times in double, its model
  // numbers them by the positions that they get, in float32. Near a tie they differ.
  Times video_at, sound_at, laid_video, laid_sound;
  const std::size_t frame = video.size() / static_cast<std::size_t>(g.frames);
  for (std::size_t v = 0; v < video.size(); ++v) {
    video_at.push_back(video[v][0]);
    const std::size_t number = v / frame;
    laid_video.push_back(static_cast<double>(number) * g.seconds * rule_.positions_per_second);
  }
  for (std::size_t s = 0; s < sounds; ++s) {
    sound_at.push_back(held(next_ + static_cast<double>(s)));
    laid_sound.push_back(static_cast<double>(s));
  }
  const Order order = order_of(video_at, sound_at, next_);
  std::vector<bool> kinds;
  for (std::size_t i = from; i < end; ++i) kinds.push_back(types_[i] == 2);
  if (kinds != order.video && kinds != order_of(laid_video, laid_sound, 0).video) {
    const auto at = std::mismatch(kinds.begin(), kinds.end(), order.video.begin()).first;
    refuse(kOmni,
           "video and sound must lie in the order of their times (" +
               std::string(enum_text(rule_.interleave)) + "), first not at real token",
           static_cast<Index>(from) + (at - kinds.begin()));
  }
  std::size_t v = 0, s = 0;
  for (const bool is_video : order.video) {
    if (is_video)
      out_.push_back(video[v++]);
    else
      put(sound_at[s++]);
  }
  go_on_behind(from + order.last_piece);
}

std::vector<OmniToken> OmniRow::built(VisionGrids& images, VisionGrids& videos) {
  while (out_.size() < types_.size()) {
    const std::size_t from = out_.size();
    switch (types_[from]) {
      case 0:
        text_run(end_of(from, is_text));
        break;
      case 1:
        if (!opened_) text_run(from);  // refuses: nothing opens it
        opened_ = false;
        vision(images.next(), end_of(from, is_image));
        break;
      case 2:
      case 3: {
        const std::size_t end = end_of(from, is_video_or_sound);
        if (!opened_) text_run(from);
        opened_ = false;
        const bool mixed = std::count(types_.begin() + static_cast<std::ptrdiff_t>(from),
                                      types_.begin() + static_cast<std::ptrdiff_t>(end),
                                      types_[from]) != static_cast<std::ptrdiff_t>(end - from);
        if (mixed)
          video_with_sound(videos.next(), end);
        else if (types_[from] == 2)
          vision(videos.next(), end);
        else
          text(end - from, true);
        break;
      }
      default:
        refuse(kOmni, "token types must be 0 text, 1 image, 2 video or 3 sound", types_[from]);
    }
  }
  // A span at the end of the row is not closed.
  if (!types_.empty() && types_.back() != 0) text_run(types_.size());
  return std::move(out_);
}

std::vector<OmniToken> counted(std::size_t count) {
  std::vector<OmniToken> v;
  for (std::size_t i = 0; i < count; ++i) {
    const auto p = static_cast<double>(i);
    v.push_back({p, p, p});
  }
  return v;
}

// floor for a below 0 too.
Index half_up(Index a) {
  return floor_divide(a - 1, 2) + 1;
}

}  // namespace

OmniRule qwen2_5_omni_rule(double positions_per_second, double seconds_per_chunk) {
  OmniRule r;
  r.positions_per_second = positions_per_second;
  r.interleave = SoundInterleave::by_chunk;
  r.seconds_per_chunk = seconds_per_chunk;
  r.whole_positions = true;
  r.shared_marks = true;
  r.padded = 1;
  return r;
}
OmniRule qwen3_omni_rule(double positions_per_second) {
  OmniRule r;
  r.positions_per_second = positions_per_second;
  return r;
}

Index qwen2_5_omni_sound_tokens(Index frames) {
  if (frames < 0) refuse_field(kOmni, "frames", "must not be negative", frames);
  return floor_divide(half_up(frames) - 2, 2) + 1;
}
Index qwen3_omni_sound_tokens(Index frames, Index window) {
  if (frames < 0) refuse_field(kOmni, "frames", "must not be negative", frames);
  if (window < 1 || window > (Index{1} << 40))
    refuse_field(kOmni, "window", "must be from 1 to 2^40", window);
  // Whole chunks of two windows give 13 tokens each, the rest is halved three times.
  const Index rest = half_up(half_up(half_up(frames % (2 * window))));
  return rest + multiply_exact(frames / (2 * window), 13, kOmni);
}

OmniPositions omni_positions(const OmniRule& rule, const ConstTensorView& token_types,
                             const ConstTensorView& mask, std::span<const VisionGrid> images,
                             std::span<const VisionGrid> videos) {
  check_rule(rule);
  const TypedRows rows(kOmni, token_types, mask);
  const IntegerRows& types = rows.types;
  VisionGrids image_grids(kOmni, rule.merge, false, images, "images");
  VisionGrids video_grids(kOmni, rule.merge, false, videos, "videos");
  // Without any grid in the call sound counts as text, whatever stands around it.
  const bool no_grids = images.empty() && videos.empty();
  const Index padded = no_grids ? rule.padded_without_grids : rule.padded;
  const auto plane = static_cast<std::size_t>(types.batch * types.tokens);
  std::vector<double> v(3 * plane, static_cast<double>(padded));
  OmniPositions result;
  const auto held = [&](double x) {
    return rule.whole_positions ? x : static_cast<double>(static_cast<float>(x));
  };
  for (Index b = 0; b < types.batch; ++b) {
    const std::vector<Index> places = rows.places(b);
    std::vector<Index> own_types;
    for (const Index t : places) own_types.push_back(types(b, t));
    const bool only_counts = no_grids && std::all_of(own_types.begin(), own_types.end(),
                                                     [](Index t) { return t == 0 || t == 3; });
    const std::vector<OmniToken> row =
        only_counts ? counted(own_types.size())
                    : OmniRow(rule, std::move(own_types)).built(image_grids, video_grids);
    // Without grids the peer takes the largest of the padding too.
    const bool counts_padding = no_grids && static_cast<Index>(row.size()) < types.tokens;
    double largest = counts_padding ? static_cast<double>(padded) : -1;
    for (std::size_t i = 0; i < row.size(); ++i)
      for (std::size_t a = 0; a < 3; ++a) {
        largest = std::max(largest, row[i][a]);
        v[a * plane + static_cast<std::size_t>(b * types.tokens + places[i])] = row[i][a];
      }
    result.delta.push_back(held(held(largest + 1) - static_cast<double>(row.size())));
  }
  image_grids.check_used_up();
  video_grids.check_used_up();
  if (rule.whole_positions)
    result.positions = own(std::vector<Index>(v.begin(), v.end()), types.batch, 3);
  else
    result.positions = own(std::move(v), types.batch, 3);
  return result;
}

}  // namespace posenc::v0
