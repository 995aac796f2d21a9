// SPDX-License-Identifier: Apache-2.0
// What stands at the input: the scheme with its offset, width and scale, which position a token
// gets, and where the rows lie among the weights. What the classes do was read in transformers
// 5.23 and stands in the table as facts (tools/model_table/facts.py, INPUT_*).
#include <algorithm>
#include <cmath>

#include "model/hugging_face/image_rows.h"
#include "model/hugging_face/layers.h"
#include "posenc/core/error.h"

namespace posenc::inline v0::hf {
namespace {

constexpr Index kMost = 1'000'000'000;

class InputReader {
 public:
  InputReader(const ConfigView& view, std::string kind, PartLayers& out)
      : view_(view), kind_(std::move(kind)), out_(out) {}

  void read() {
    width_ = view_.integer(width_key(), 1, kMost, true);
    if (!width_) return;
    encoding_.origin = Origin::class_default;
    encoding_.where = view_.class_name();
    if (const Json* at = fact("input_at"))
      encoding_.where += ", at " + at->as_string() + " of its layers";
    if (fact("input_padding") && !fact("input_slots"))
      encoding_.counts = PositionRule::tokens;
    else if (fact("input_mask"))
      encoding_.counts = PositionRule::mask;
    made_ = EncodingBuilder(kind_);
    const bool fine = kind_ == "learned"         ? learned()
                      : kind_ == "sinusoidal"    ? sinusoid()
                      : kind_ == "sinusoidal_nd" ? grid_of_sines()
                      : kind_ == "learned_axes"  ? two_tables()
                                                 : convolution();
    if (fine) push();
    if (const Json* rows = fact("input_boxes")) boxes(rows->as_string());
    if (const Json* more = fact("input_also")) second_table(*more);
  }

 private:
  const Json* fact(std::string_view name) const { return view_.entry().find(name); }
  Report& report() const { return view_.report(); }

  void push() {
    auto made = made_.finish(report(), view_.where(), check_parameters);
    if (!made) return;
    encoding_.value = std::move(*made);
    out_.input.push_back(encoding_);
  }

  // As the class has it.
  void set(std::string_view field, Json value) {
    made_.set(field, std::move(value), Origin::class_default, view_.class_name());
  }

  // The key of the width; of several the first that the file states, else the last.
  std::string width_key() const {
    const Json* names = fact("input_width");
    if (!names) return "hidden_size";
    for (const Json& name : names->as_array())
      if (const auto v = view_.stated(name.as_string()); v && !v->value.is_null())
        return name.as_string();
    return names->as_array().back().as_string();
  }

  std::string tensor(const char* otherwise) const {
    const Json* named = fact("input_tensor");
    const Json* side = fact("side");
    const std::string part = side              ? side->as_string() + "."
                             : fact("decoder") ? std::string("encoder.")
                                               : std::string();
    return named || *otherwise ? part + (named ? named->as_string() : otherwise) : "";
  }

  // Sines of rows and columns: of each image, or ViT-MAE's table of its patches, behind a row of
  // zeros.
  bool grid_of_sines() {
    const auto grid = sines_of_grid(view_, *width_, made_);
    if (!grid) return false;
    encoding_.grid = *grid;
    if (grid->of_model()) {
      const Index before = view_.entry().at("input_patches").as_integer();
      encoding_.image_prefix = before;
      encoding_.positions = before + grid->rows * grid->columns;
      encoding_.tensors = {tensor("")};
      out_.original_context = *encoding_.positions;
    }
    return true;
  }

  // A table of rows and one of columns: summed, or half of the channels each in a given order.
  bool two_tables() {
    const Json* cells = fact("input_cells");
    const auto rows =
        cells ? Sourced<Index>{cells->as_integer(), Origin::class_default, view_.class_name()}
              : view_.integer(rows_key(), 1, kMost, true);
    if (!rows) return false;
    if (!fact("input_x_first"))  // a grid's cells have the row before the column
      encoding_.grid = ImageGrid{0, 0, cell_coordinates(view_)};
    encoding_.tensors = {tensor("")};
    if (const Json* second = fact("input_tensor_columns"))
      encoding_.tensors.push_back(second->as_string());
    made_.set("shape", Json::array({rows->value, rows->value}), rows->origin, rows->where);
    made_.set("width", *width_);
    if (const Json* order = fact("input_order")) {
      const Index half = width_->value / 2;
      made_.set("widths", Json::array({half, half}), width_->origin, width_->where);
      set("order", *order);
    }
    return true;
  }

  // wav2vec 2.0 and its kin.
  bool convolution() {
    if (view_.flag("conv_pos_batch_norm", false)) {  // HuBERT
      report().note("encoding_not_covered",
                    "positions are convolutional, behind a batch normalisation that has no scheme "
                    "here",
                    view_.where("conv_pos_batch_norm"));
      return false;
    }
    const auto kernel = view_.integer("num_conv_pos_embeddings", 1, 1'000'000, true);
    const auto groups = view_.integer("num_conv_pos_embedding_groups", 1, 1'000'000, true);
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
    if (!id) {
      if (!stated || stated->value.is_null())
        report().error("missing_key",
                       std::string("pad_token_id is ") + (stated ? "null" : "missing") + ": " +
                           view_.class_name() +
                           " counts positions from pad_token_id + 1, so no token has a position",
                       stated ? stated->where : view_.where("pad_token_id"),
                       "state the id that the model was trained with (RoBERTa, fairseq: 1)");
      return std::nullopt;
    }
    const Json* defaults = fact("defaults");
    const Json* held = defaults ? defaults->find("pad_token_id") : nullptr;
    if (held && held->is_integer() && held->as_integer() != id->value && !fact("input_any_padding"))
      report().warn("padding_offset",
                    "pad_token_id is " + std::to_string(id->value) +
                        ": the first token reads row " + std::to_string(id->value + 1) +
                        " of the positions; checkpoints of this class were trained with padding " +
                        std::to_string(held->as_integer()) + ", first row " +
                        std::to_string(held->as_integer() + 1),
                    id->where, "state the padding that the model was trained with",
                    static_cast<double>(id->value));
    return id->value;
  }

  std::string rows_key() const {
    const Json* key = fact("side") && fact("decoder_input") ? nullptr : fact("input_rows");
    return key ? key->as_string() : "max_position_embeddings";
  }

  // Sets the number of positions that have a row too.
  bool learned() {
    encoding_.tensors = {tensor("embeddings.position_embeddings.weight")};
    std::optional<Sourced<Index>> rows;
    if (fact("input_patches")) {
      if (const auto image = image_rows(view_)) {
        rows = {image->rows, Origin::derived, view_.where(image->key)};
        encoding_.image_prefix = image->before;
        encoding_.rows_key = image->key;
      }
    } else if (const Json* rule = fact("input_segments")) {
      rows = segments(*rule);
    } else if ((rows = view_.integer(rows_key(), 1, kUnbounded / 4, true))) {
      encoding_.rows_key = rows_key();
    }
    if (!rows) return false;
    Index offset = 0, positions = rows->value;
    if (view_.rules().input_offset) {
      offset = *view_.rules().input_offset;
      rows->value += offset;
    } else if (fact("input_padding")) {
      const auto pad = padding();
      if (!pad) return false;
      offset = *pad + 1;
      positions = std::max<Index>(0, rows->value - offset);
      if (*pad >= 0 && !fact("input_slots")) encoding_.padding_row = *pad;
      if (*pad >= rows->value)
        report().error("padding_offset",
                       "positions count from row " + std::to_string(offset) +
                           " (pad_token_id + 1), and the table has " + std::to_string(rows->value),
                       view_.where("pad_token_id"),
                       "state the pad_token_id that the model was trained with",
                       static_cast<double>(*pad));
    }
    encoding_.positions = positions;
    out_.original_context = positions;
    made_.set("rows", *rows);
    if (offset > 0) set("offset", offset);
    made_.set("width", *width_);
    scale();
    if (const Json* beyond = fact("input_beyond")) set("beyond", *beyond);
    return true;
  }

  // Series cut into segments: one row for each, and one for a token before them.
  std::optional<Sourced<Index>> segments(const Json& rule) const {
    const auto length = view_.integer(rule.at("length").as_string(), 1, kMost, true);
    const auto size = view_.integer("patch_length", 1, kMost, true);
    const auto step = view_.integer("patch_stride", 1, kMost, true);
    if (!length || !size || !step) return std::nullopt;
    if (length->value <= size->value) {
      report().error("wrong_type",
                     length->where + " is " + std::to_string(length->value) +
                         " and must be more than patch_length, " + std::to_string(size->value) +
                         ": " + view_.class_name() + " refuses the file",
                     length->where, "state the sizes of the model");
      return std::nullopt;
    }
    const Json* first = rule.find("before");
    const bool more = first && view_.flag(first->as_string(), false);
    return Sourced<Index>{(length->value - size->value) / step->value + 1 + (more ? 1 : 0),
                          Origin::derived, length->where};
  }

  // Another table beside the first: of frames, learned or a sinusoid.
  void second_table(const Json& more) {
    if (const Json* unless = more.find("unless"))
      if (const auto v = view_.value(unless->at("key").as_string());
          v && v->value == unless->at("equals"))
        return;
    const auto rows = view_.integer(more.at("rows").as_string(), 1, kMost, true);
    if (!rows) return;
    const Json* sines = more.find("sinusoid");
    encoding_.tensors.clear();
    if (!sines) encoding_.tensors = {more.at("tensor").as_string()};
    encoding_.positions = rows->value;
    encoding_.image_prefix.reset();
    encoding_.rows_key = more.at("rows").as_string();
    if (const Json* by = more.find("by"))
      encoding_.where = view_.class_name() + ", a row for each " + by->as_string();
    made_ = EncodingBuilder(sines ? "sinusoidal" : "learned");
    if (sines)
      set_words(view_, sines->as_string(), made_);
    else
      made_.set("rows", *rows);
    made_.set("width", *width_);
    push();
  }

  bool sinusoid() {
    if (fact("input_patches")) {  // a fixed table of all patches
      const auto image = image_rows(view_);
      if (!image) return false;
      encoding_.positions = image->rows;
    }
    if (fact("input_tensor")) encoding_.tensors = {tensor("")};
    if (const Json* more = fact("input_text")) set_words(view_, more->as_string(), made_);
    if (const auto offset = view_.rules().input_offset) {
      const Index first = *offset;  // XGLM: fixed; padding's row is zero all the same
      set("offset", first);
      if (const auto pad = view_.integer("pad_token_id", 0, 1'000'000'000)) {
        made_.set("zero_position", pad->value - first, pad->origin, pad->where);
        encoding_.padding_row = pad->value;
        if (pad->value >= first)
          report().warn("padding_offset",
                        "the row of pad_token_id " + std::to_string(pad->value) +
                            " is set to zero, and positions start at row " + std::to_string(first) +
                            " whatever padding is: position " + std::to_string(pad->value - first) +
                            " of every text adds nothing",
                        pad->where, "the class is written for pad_token_id 1",
                        static_cast<double>(pad->value));
      }
    } else if (fact("input_padding")) {
      const auto pad = padding();
      if (!pad) return false;
      encoding_.padding_row = *pad;
      set("offset", *pad + 1);
      set("zero_position", -1);
    }
    if (fact("input_over_root"))  // NeMo divides its rows by sqrt(width)
      set("gain", 1 / std::sqrt(static_cast<double>(width_->value)));
    if (const Json* key = fact("input_keeps"))
      if (const auto rows = view_.integer(key->as_string(), 1, kUnbounded / 4))
        encoding_.positions = rows->value;
    made_.set("width", *width_);
    const bool fine = odd_width();
    scale();
    return fine;
  }

  // What the class does with a width that its code cannot halve.
  bool odd_width() {
    const Index width = width_->value;
    const auto number = static_cast<double>(width);
    const Json* words = fact("input_text");
    const bool t2t = words && words->as_string().find("spacing=t2t") != std::string::npos;
    if (t2t && (width == 2 || width == 3)) {
      report().error("sinusoid_width",
                     view_.class_name() + " divides by zero at width " + std::to_string(width) +
                         ": its spacing divides by width // 2 - 1",
                     width_->where, "use a width of 4 or more", number);
      return false;
    }
    if (width % 2 == 0) return true;
    const Json* odd = fact("input_odd");
    if (!odd) {
      report().error("sinusoid_width",
                     view_.class_name() + " cannot make a sinusoid of odd width " +
                         std::to_string(width) + ": transformers fails",
                     width_->where, "use an even width", number);
      return false;
    }
    const bool pads = odd->as_string() == "zero_pad";
    report().warn("sinusoid_width",
                  "odd width " + std::to_string(width) + ": " + view_.class_name() +
                      (pads ? " appends a zero (as fairseq and tensor2tensor)"
                            : " drops the last cosine (the Marian program wraps instead)") +
                      "; OpenNMT and MLX refuse it",
                  width_->where, "use an even width, or odd=" + odd->as_string() + " everywhere",
                  number);
    set("odd", *odd);
    return true;
  }

  void scale() {
    if (fact("side") && fact("decoder_unscaled")) return;
    if (const auto gain = input_gain(view_, width_->value, kind_ == "learned"))
      made_.set("input_gain", *gain);
  }

  void boxes(const std::string& key) {
    const auto rows = view_.integer(key, 1, 1'000'000'000);
    if (!rows) return;
    made_ = EncodingBuilder("boxes");
    made_.set("rows", *rows);
    made_.set("width", *width_);
    encoding_.tensors.clear();
    for (const char* axis : {"x", "y", "h", "w"})
      encoding_.tensors.push_back(std::string("embeddings.") + axis +
                                  "_position_embeddings.weight");
    encoding_.positions.reset();
    encoding_.counts = PositionRule::arange;
    encoding_.padding_row.reset();
    const Json* parts = fact("input_box_parts");
    if (!parts) {
      push();
      return;
    }
    const auto corner = view_.integer("coordinate_size", 1, kMost, true);
    const auto size = view_.integer("shape_size", 1, kMost, true);
    if (!corner || !size) return;
    const Index all = 4 * corner->value + 2 * size->value;
    if (all == width_->value) {
      made_.set("coordinate", *corner);
      made_.set("shape", *size);
      if (parts->as_string() == "clipped") set("clip", true);
      push();
    } else {
      report().error("wrong_type",
                     "4 coordinate_size + 2 shape_size is " + std::to_string(all) +
                         " and hidden_size " + std::to_string(width_->value) +
                         ": transformers cannot add them",
                     corner->where, "state the sizes of the model");
    }
  }

  const ConfigView& view_;
  std::string kind_;
  PartLayers& out_;
  std::optional<Sourced<Index>> width_;
  EncodingBuilder made_;
  InputEncoding encoding_;
};

}  // namespace

void set_words(const ConfigView& view, std::string_view words, EncodingBuilder& made) {
  while (!words.empty()) {
    words.remove_prefix(1);  // the blank
    const std::string_view word = words.substr(0, words.find(' '));
    const std::size_t cut = word.find('=');
    made.set(word.substr(0, cut), std::string(word.substr(cut + 1)), Origin::class_default,
             view.class_name());
    words.remove_prefix(word.size());
  }
}

void read_input(const ConfigView& view, const std::string& kind, PartLayers& out) {
  for (const char* known :
       {"learned", "sinusoidal", "sinusoidal_nd", "learned_axes", "convolutional"})
    if (kind == known) InputReader(view, kind, out).read();
}

}  // namespace posenc::v0::hf
