// SPDX-License-Identifier: Apache-2.0
// Risks of what acts at the input. docs/doctor.md has a paragraph on each.
#include "model/doctor/input.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>

#include "model/hugging_face/config_view.h"
#include "model/learned_tables.h"
#include "posenc/core/describe.h"
#include "posenc/core/error.h"
#include "posenc/model/weights.h"

namespace posenc::inline v0 {
namespace {

Index offset_of(const Encoding& e) {
  if (const auto* s = std::get_if<Learned>(&e.scheme)) return s->offset;
  if (const auto* s = std::get_if<Sinusoidal>(&e.scheme)) return s->offset;
  return 0;
}

class InputDoctor {
 public:
  InputDoctor(const ModelSpec& spec, Diagnostics& report) : spec_(spec), report_(report) {}

  void run() {
    for (const InputEncoding& e : spec_.input) {
      const bool learned = std::holds_alternative<Learned>(e.value.scheme);
      if (e.positions && spec_.context.origin == Origin::user && spec_.context.value > *e.positions)
        learned || (e.grid && e.grid->of_model()) ? beyond_rows(e) : beyond_sinusoid(e);
      if (learned && offset_of(e.value) > 0) offset(e);
      if (const auto* s = std::get_if<Sinusoidal>(&e.value.scheme)) float32(*s);
      left_padding(e);
    }
    const Json* bug = hf::table_member("peer_bugs").find(spec_.model_type);
    if (bug && spec_.reader == "transformers")
      add(Severity::note, "peer_bug", bug->at("message").as_string(), bug->at("fix").as_string());
  }

 private:
  void add(Severity severity, const char* code, const Sentence& text, const Sentence& fix,
           std::optional<double> value = {}) {
    report_.add(severity, code, text, spec_.file, fix, value);
  }

  // The table: what lies beside the config, where that is one tensor; otherwise a word for the file
  // and the name as the class ends it, no shape.
  StoredTensor table_of(const InputEncoding& e) const {
    const std::string name = e.tensors.empty() ? "NAME" : e.tensors.front();
    try {
      std::vector<StoredTensor> found;
      if (!e.tensors.empty()) found = ModelWeights(spec_.weights).find(name);
      if (found.size() == 1) return found[0];
    } catch (const FormatError&) {  // said by check_tables
    }
    StoredTensor t;
    t.file = "WEIGHTS", t.name = name;
    return t;
  }

  // How far hierarchical rows reach; n^2 of so many rows must be a number.
  static std::string hierarchical(Index n, Index wanted) {
    if (n >= (Index{1} << 31)) return "";
    return message("; hierarchical keeps the first {} and {} n^2 = {}", n,
                   wanted <= n * n ? "reaches" : "ends at", n * n);
  }

  void beyond_rows(const InputEncoding& e) {
    const Index n = *e.positions, wanted = spec_.context.value, offset = offset_of(e.value);
    const StoredTensor table = table_of(e);
    const std::string &file = table.file, &tensor = table.name;
    const Index stored = table.shape.size() < 2 ? 0 : as_rows(table.shape).front();
    std::string fix;
    if (stored >= wanted + offset) {
      fix =
          message("the table in {} has {} rows, which is enough: state its size (see table_shape)",
                  file, stored);
    } else if (spec_.reader == "llama_cpp") {
      fix =
          "use fewer positions, or extend the table of the model's safetensors file (posenc "
          "extend) and convert it again";
    } else if (e.image_prefix) {
      const Index kept = *e.image_prefix;
      const auto side =
          static_cast<Index>(std::ceil(std::sqrt(static_cast<double>(wanted - kept))));
      const std::string to =
          side_of_square(n - kept) ? message("{}x{}", side, side) : std::string("HxW");
      fix = "rows for a larger image: " + extend_command(file, tensor, kept, to, "bicubic");
    } else {
      fix = message(
          "use fewer positions, or make rows (linear reaches any length and changes every row{}): "
          "{}",
          hierarchical(stored > offset ? stored - offset : n, wanted),
          extend_command(file, tensor, offset, std::to_string(wanted + offset), "linear"));
    }
    add(Severity::error, "context_beyond_table",
        {"the context of {} is longer than the {} positions of the {}: there are no more rows",
         wanted, n, e.grid ? "model's table" : "learned table"},
        fix, static_cast<double>(n));
  }

  void beyond_sinusoid(const InputEncoding& e) {
    add(Severity::warning, "context_beyond_table",
        {"the context of {} is longer than the {} rows of the sinusoid that transformers stores: "
         "transformers fails beyond them, although every row can be computed",
         spec_.context.value, *e.positions},
        "posenc table computes rows for any position; the model was not trained with them",
        static_cast<double>(*e.positions));
  }

  void offset(const InputEncoding& e) {
    const Index offset = offset_of(e.value);
    const Index rows = std::get<Learned>(e.value.scheme).rows, count = e.positions.value_or(0);
    const auto note = [&](const Sentence& text, const Sentence& fix) {
      add(Severity::note, "padding_offset", text, fix, static_cast<double>(offset));
    };
    if (e.counts == PositionRule::tokens)
      note({"the table has {} rows for {} tokens: the first token reads row {} (pad_token_id + 1), "
            "padding reads row {}, and only tokens that are not padding count",
            rows, count, offset, offset - 1},
           {"use at most {} tokens; positions that count from 0 read wrong rows", count});
    else
      note({"position p reads row p + {}: the table has {} rows for {} positions", offset, rows,
            count},
           {"pass positions that count from 0, and keep the first {} rows if you extend the table "
            "(--prefix {})",
            offset, offset});
  }

  void float32(const Sinusoidal& s) {
    const Index length = spec_.context.value;
    if (length < 1 || s.width < 1) return;
    const double worst = float32_error(s.spectrum(), length, s.offset);
    add(float32_severity(worst), "float32_angle",
        {"angles of the sinusoid computed in float32 are wrong by up to {} rad at position {}",
         rounded(worst), length - 1},
        "compute angles in double, or use posenc table", worst);
  }

  // Decoders are fed batches that are padded on the left.
  void left_padding(const InputEncoding& e) {
    if (spec_.layers.empty() || !spec_.layers.front().attention.is_causal() || e.image_prefix ||
        spec_.reader != "transformers")
      return;
    const bool decoder =
        std::ranges::none_of(spec_.towers, [](const Tower& t) { return t.name == "encoder"; });
    if (e.counts == PositionRule::arange && decoder)
      add(Severity::note, "left_padding",
          "without position_ids every slot counts, padding included: in a left-padded batch, short "
          "texts start at a position above 0",
          "pass position_ids, the running sum of the mask less 1 (posenc::from_mask)");
    if (e.counts == PositionRule::tokens)
      add(Severity::note, "left_padding",
          "a full pass counts tokens without padding, but a step with a cache counts cached "
          "padding too: positions of left-padded texts jump at the first step",
          "pad on the right, or pass positions to each step");
  }

  const ModelSpec& spec_;
  Diagnostics& report_;
};

// A word of a shell: as it is, or within single quotes.
std::string shell_word(const std::string& text) {
  const bool plain = std::ranges::all_of(text, [](unsigned char c) {
    return std::isalnum(c) != 0 ||
           std::string_view("_-./+=:@%,").find(static_cast<char>(c)) != std::string_view::npos;
  });
  if (plain && !text.empty()) return text;
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

}  // namespace

std::optional<Index> side_of_square(Index patches) {
  if (patches < 1) return std::nullopt;
  const auto side = static_cast<Index>(std::llround(std::sqrt(static_cast<double>(patches))));
  return side * side == patches ? std::optional<Index>(side) : std::nullopt;
}

std::string rounded(double x) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2g", x);
  return text;
}

std::string extend_command(const std::string& file, const std::string& tensor, Index kept,
                           const std::string& to, const std::string& how) {
  return message("posenc extend {} --tensor {}{} --to {} --how {} -o longer.safetensors",
                 shell_word(file), shell_word(tensor),
                 kept > 0 ? message(" --prefix {}", kept) : "", to, how);
}

double float32_error(const Spectrum& spectrum, Index length, Index offset) {
  double worst = 0;
  for (const double f : spectrum.frequency)
    for (const Index back : {1, 2, 3}) {
      const auto p = static_cast<double>(std::max<Index>(0, length - back) + offset);
      const float angle = static_cast<float>(p) * static_cast<float>(f);
      worst = std::max(worst, std::abs(static_cast<double>(angle) - p * f));
    }
  return worst;
}

void find_input_risks(const ModelSpec& spec, Diagnostics& report) {
  InputDoctor(spec, report).run();
}

}  // namespace posenc::v0
