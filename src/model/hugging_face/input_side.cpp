// SPDX-License-Identifier: Apache-2.0
// What stands at the input: the scheme with its offset, width and scale, which position a token
// gets, and where the rows lie among the weights. What the classes do was read in transformers
// 5.23 and stands in the table as facts (model/data/hugging_face/models).
#include <algorithm>
#include <array>
#include <cmath>

#include "model/hugging_face/image_rows.h"
#include "model/hugging_face/input_side.h"
#include "model/hugging_face/layers.h"
#include "posenc/registry.h"

namespace posenc::inline v0::hf {
namespace {

constexpr Index kMost = 1'000'000'000;

class InputReader {
 public:
  struct Kind {
    std::string_view scheme;
    bool (InputReader::*read)();
    bool learned = false;
  };
  // The schemes at the input that classes of the table have.
  static const Kind* kind_of(std::string_view scheme) {
    using R = InputReader;
    static constexpr std::array<Kind, 5> kinds{{{Learned::card.name, &R::learned, true},
                                                {Sinusoidal::card.name, &R::sinusoid},
                                                {SinusoidalNd::card.name, &R::grid_of_sines},
                                                {LearnedAxes::card.name, &R::two_tables},
                                                {Convolutional::card.name, &R::convolution}}};
    const auto it = std::ranges::find(kinds, scheme, &Kind::scheme);
    return it == kinds.end() ? nullptr : &*it;
  }

  InputReader(const ConfigView& view, const Kind& kind, PartLayers& out)
      : view_(view), rules_(view.rules()), kind_(kind), out_(out), made_(kind.scheme) {}

  void read() {
    width_ = size(width_key());
    if (!width_) return;
    encoding_.origin = Origin::class_default;
    encoding_.where = view_.class_name();
    if (!rules_.input_at.empty()) encoding_.where += ", at " + rules_.input_at + " of its layers";
    if (rules_.input_padding && !rules_.input_slots)
      encoding_.counts = PositionRule::tokens;
    else if (rules_.input_mask)
      encoding_.counts = PositionRule::mask;
    if ((this->*kind_.read)()) push();
    if (!rules_.input_boxes.empty()) boxes();
    if (rules_.input_also) second_table(*rules_.input_also);
  }

 private:
  using Size = std::optional<Sourced<Index>>;

  void push() {
    auto made = made_.finish(view_.report(), view_.where(), check_parameters);
    if (!made) return;
    encoding_.value = std::move(*made);
    out_.input.push_back(encoding_);
  }

  // As the class has it.
  void set(std::string_view field, Json value) {
    made_.set(field, view_.of_class(std::move(value)));
  }
  Size size(const std::string& key, Index most = kMost) const {
    return view_.integer(key, 1, most, true);
  }

  // The key of the width; of several the first that the file states, else the last.
  std::string width_key() const {
    for (const std::string& name : rules_.input_width)
      if (view_.stated_value(name)) return name;
    return rules_.input_width.empty() ? "hidden_size" : rules_.input_width.back();
  }

  std::vector<std::string> tensor(const std::string& otherwise = "") const {
    const std::string& name = rules_.input_tensor.empty() ? otherwise : rules_.input_tensor;
    const std::string part = !rules_.side.empty()      ? rules_.side + "."
                             : !rules_.decoder.empty() ? "encoder."
                                                       : "";
    return {name.empty() ? name : part + name};
  }

  // Sines of rows and columns: of each image, or ViT-MAE's table of its patches, behind a row of
  // zeros.
  bool grid_of_sines() {
    encoding_.grid = sines_of_grid(view_, *width_, made_);
    if (!encoding_.grid) return false;
    if (encoding_.grid->of_model()) {
      encoding_.image_prefix = rules_.input_patches.value_or(0);
      encoding_.positions =
          *encoding_.image_prefix + encoding_.grid->rows * encoding_.grid->columns;
      encoding_.tensors = tensor();
      out_.original_context = encoding_.positions;
    }
    return true;
  }

  // A table of rows and one of columns: summed, or half of the channels each in a given order.
  bool two_tables() {
    const Size rows = rules_.input_cells ? view_.of_class(*rules_.input_cells) : size(rows_key());
    if (!rows) return false;
    if (!rules_.input_x_first)  // a grid's cells have the row before the column
      encoding_.grid = ImageGrid{0, 0, cell_coordinates(view_)};
    encoding_.tensors = tensor();
    if (!rules_.input_tensor_columns.empty())
      encoding_.tensors.push_back(rules_.input_tensor_columns);
    made_.set("shape", Json::array({rows->value, rows->value}), rows->origin, rows->where);
    made_.set("width", *width_);
    if (!rules_.input_order.is_null()) {
      const Index half = width_->value / 2;
      made_.set("widths", Json::array({half, half}), width_->origin, width_->where);
      set("order", rules_.input_order);
    }
    return true;
  }

  // wav2vec 2.0 and similar models.
  bool convolution() {
    if (view_.flag("conv_pos_batch_norm", false)) {  // HuBERT
      view_.note(
          "encoding_not_covered",
          "positions are convolutional, behind a batch normalisation that has no scheme here",
          view_.where("conv_pos_batch_norm"));
      return false;
    }
    const auto kernel = size("num_conv_pos_embeddings", 1'000'000);
    const auto groups = size("num_conv_pos_embedding_groups", 1'000'000);
    if (!kernel || !groups) return false;
    made_.set("kernel", *kernel);
    made_.set("groups", *groups);
    made_.set("width", *width_);
    return true;
  }

  // pad_token_id of a class that counts positions from behind it; a finding and none without one.
  std::optional<Index> padding() {
    const auto stated = view_.stated("pad_token_id");
    const auto id = view_.integer("pad_token_id", -1, kMost);
    if (!id && stated && !stated->value.is_null()) return std::nullopt;
    if (!id)
      return view_.error("missing_key",
                         {"pad_token_id is {}: {class} counts positions from pad_token_id + 1, so "
                          "no token has a position",
                          stated ? "null" : "missing"},
                         view_.place(stated, "pad_token_id"),
                         "state the id that the model was trained with (RoBERTa, fairseq: 1)");
    const Json* held = view_.held_by_class("pad_token_id");
    if (held && held->is_integer() && held->as_integer() != id->value && !rules_.input_any_padding)
      view_.warn("padding_offset",
                 {"pad_token_id is {}: the first token reads row {} of the positions; checkpoints "
                  "of this class were trained with padding {}, first row {}",
                  id->value, id->value + 1, *held, held->as_integer() + 1},
                 *id, "state the padding that the model was trained with", id->value);
    return id->value;
  }

  std::string rows_key() const {
    return rules_.input_rows.empty() ? "max_position_embeddings" : rules_.input_rows;
  }

  // How many rows the table has before the offset.
  Size table_rows() {
    if (rules_.input_patches) {
      const auto image = image_rows(view_);
      if (!image) return std::nullopt;
      encoding_.image_prefix = image->before;
      encoding_.rows_key = image->key;
      return counted(image->rows, view_.where(image->key));
    }
    if (!rules_.input_segments.empty()) return segments(rules_.input_segments);
    const auto rows = size(rows_key(), kUnbounded / 4);
    if (rows) encoding_.rows_key = rows_key();
    return rows;
  }

  // Sets the number of positions that have a row too.
  bool learned() {
    encoding_.tensors = tensor("embeddings.position_embeddings.weight");
    Size rows = table_rows();
    if (!rows) return false;
    Index offset = rules_.input_offset.value_or(0);
    encoding_.positions = rows->value;
    rows->value += offset;
    if (!rules_.input_offset && rules_.input_padding) {
      const auto pad = padding();
      if (!pad) return false;
      offset = *pad + 1;
      encoding_.positions = std::max<Index>(0, rows->value - offset);
      if (*pad >= 0 && !rules_.input_slots) encoding_.padding_row = *pad;
      if (*pad >= rows->value)
        view_.error("padding_offset",
                    {"positions count from row {} (pad_token_id + 1), and the table has {}", offset,
                     rows->value},
                    view_.where("pad_token_id"),
                    "state the pad_token_id that the model was trained with", *pad);
    }
    out_.original_context = encoding_.positions;
    made_.set("rows", *rows);
    if (offset > 0) set("offset", offset);
    made_.set("width", *width_);
    scale();
    if (!rules_.input_beyond.empty()) set("beyond", rules_.input_beyond);
    return true;
  }

  // Series cut into segments: one row for each, and one for a token before them.
  Size segments(const std::string& before) const {
    const auto length = size("context_length"), patch = size("patch_length"),
               step = size("patch_stride");
    if (!length || !patch || !step) return std::nullopt;
    if (length->value <= patch->value)
      return view_.wrong_type(
          {"{} is {} and must be more than patch_length, {}: {class} refuses the file",
           length->where, length->value, patch->value},
          *length);
    const bool more = before != "true" && view_.flag(before, false);
    return counted((length->value - patch->value) / step->value + 1 + more, length->where);
  }

  // Another table beside the first: of frames, learned or a sinusoid.
  void second_table(const InputAlso& more) {
    const auto rows = size(more.rows);
    if (!rows) return;
    const bool sines = !more.sinusoid.empty();
    encoding_.tensors.assign(sines ? 0 : 1, more.tensor);
    encoding_.positions = rows->value;
    encoding_.image_prefix.reset();
    encoding_.rows_key = more.rows;
    if (!more.by.empty()) encoding_.where = view_.class_name() + ", a row for each " + more.by;
    made_ = EncodingBuilder(sines ? Sinusoidal::card.name : Learned::card.name);
    set_words(view_, more.sinusoid, made_);
    if (!sines) made_.set("rows", *rows);
    made_.set("width", *width_);
    push();
  }

  bool sinusoid() {
    if (rules_.input_patches) {  // a fixed table of all patches
      const auto image = image_rows(view_);
      if (!image) return false;
      encoding_.positions = image->rows;
    }
    if (!rules_.input_tensor.empty()) encoding_.tensors = tensor();
    set_words(view_, rules_.input_text.value_or(""), made_);
    if (rules_.input_offset) {
      fixed_offset(*rules_.input_offset);
    } else if (rules_.input_padding) {
      encoding_.padding_row = padding();
      if (!encoding_.padding_row) return false;
      set("offset", *encoding_.padding_row + 1);
      set("zero_position", -1);
    }
    if (rules_.input_over_root)  // NeMo divides its rows by sqrt(width)
      set("gain", 1 / std::sqrt(static_cast<double>(width_->value)));
    if (!rules_.input_keeps.empty())
      if (const auto rows = view_.integer(rules_.input_keeps, 1, kUnbounded / 4))
        encoding_.positions = rows->value;
    made_.set("width", *width_);
    const bool fine = odd_width();
    scale();
    return fine;
  }

  // XGLM: fixed; padding's row is zero all the same.
  void fixed_offset(Index first) {
    set("offset", first);
    const auto pad = view_.integer("pad_token_id", 0, kMost);
    if (!pad) return;
    made_.set("zero_position", pad->value - first, pad->origin, pad->where);
    encoding_.padding_row = pad->value;
    if (pad->value >= first)
      view_.warn("padding_offset",
                 {"the row of pad_token_id {} is set to zero, but positions always start at row "
                  "{}: position {} of every text adds nothing",
                  pad->value, first, pad->value - first},
                 *pad, "the class is written for pad_token_id 1", pad->value);
  }

  // What the class does with a width that its code cannot halve.
  bool odd_width() {
    const Index width = width_->value;
    const std::string &odd = rules_.input_odd, class_name = view_.class_name();
    const bool t2t = rules_.input_text.value_or("").find("spacing=t2t") != std::string::npos;
    if (t2t && (width == 2 || width == 3))
      return view_.error("sinusoid_width",
                         {"{} divides by zero at width {}: its spacing divides by width // 2 - 1",
                          class_name, width},
                         *width_, "use a width of 4 or more", width);
    if (width % 2 == 0) return true;
    if (odd.empty())
      return view_.error(
          "sinusoid_width",
          {"{} cannot make a sinusoid of odd width {}: transformers fails", class_name, width},
          *width_, "use an even width", width);
    view_.warn("sinusoid_width",
               {"odd width {}: {}{}; OpenNMT and MLX refuse it", width, class_name,
                odd == "zero_pad" ? " appends a zero (as fairseq and tensor2tensor)"
                                  : " drops the last cosine (the Marian program wraps instead)"},
               *width_, {"use an even width, or odd={} everywhere", odd}, width);
    set("odd", odd);
    return true;
  }

  void scale() {
    if (const auto gain = input_gain(view_, width_->value, kind_.learned))
      made_.set("input_gain", *gain);
  }

  void boxes() {
    const auto rows = view_.integer(rules_.input_boxes, 1, kMost);
    if (!rows) return;
    made_ = EncodingBuilder("boxes");
    made_.set("rows", *rows);
    made_.set("width", *width_);
    encoding_.tensors.clear();
    for (const char* axis : {"x", "y", "h", "w"})
      encoding_.tensors.push_back(message("embeddings.{}_position_embeddings.weight", axis));
    encoding_.positions.reset();
    encoding_.counts = PositionRule::arange;
    encoding_.padding_row.reset();
    if (rules_.input_box_parts.empty() || box_parts()) push();
  }

  bool box_parts() {
    const auto corner = size("coordinate_size"), shape = size("shape_size");
    if (!corner || !shape) return false;
    const Index all = 4 * corner->value + 2 * shape->value;
    if (all != width_->value)
      return view_.wrong_type({"4 coordinate_size + 2 shape_size is {} and hidden_size {}: "
                               "transformers cannot add them",
                               all, width_->value},
                              *corner);
    made_.set("coordinate", *corner);
    made_.set("shape", *shape);
    if (rules_.input_box_parts == "clipped") set("clip", true);
    return true;
  }

  const ConfigView& view_;
  const ClassRules& rules_;
  const Kind& kind_;
  PartLayers& out_;
  Size width_{};
  EncodingBuilder made_;
  InputEncoding encoding_{};
};

}  // namespace

void set_words(const ConfigView& view, std::string_view words, EncodingBuilder& made) {
  while (!words.empty()) {
    words.remove_prefix(1);  // the blank
    const std::string_view word = words.substr(0, words.find(' '));
    const std::size_t cut = word.find('=');
    made.set(word.substr(0, cut), view.of_class<Json>(std::string(word.substr(cut + 1))));
    words.remove_prefix(word.size());
  }
}

void read_input(const ConfigView& view, const std::string& kind, PartLayers& out) {
  if (const auto* known = InputReader::kind_of(kind)) InputReader(view, *known, out).read();
}

}  // namespace posenc::v0::hf
