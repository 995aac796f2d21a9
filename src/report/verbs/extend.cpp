// SPDX-License-Identifier: Apache-2.0
// posenc extend: a learned table of positions in a real file at another size.
#include <fmt/format.h>

#include <memory>

#include "extend_rows.h"
#include "notes.h"
#include "posenc/io/gguf.h"
#include "posenc/report/verb.h"
#include "utf8.h"

namespace posenc::report {
namespace {

std::vector<std::string> notes_of(const SafetensorsIndex& index, const SafetensorsEntry& table,
                                  const TableShape& from, const TableShape& to) {
  const Index old_rows = from.rows(), new_rows = to.rows();
  std::vector<std::string> notes;
  if (from.prefix > 0 && table.name.find("positional_embedding_vlm") != std::string::npos)
    notes.push_back(
        fmt::format("{} is Llama 4's vision table, whose class token is its last row: --suffix 1, "
                    "not --prefix {}",
                    table.name, from.prefix));
  for (const SafetensorsEntry& e : index.tensors)
    if (e.name != table.name && e.name.find("position_ids") != std::string::npos &&
        !e.shape.empty() && e.shape.back() == old_rows && old_rows != new_rows)
      notes.push_back(fmt::format("{} still counts {} positions", e.name, old_rows));
  for (const SafetensorsEntry& e : index.tensors)
    if (e.name != table.name && e.shape == table.shape && e.dtype == table.dtype &&
        e.name.find("pos") != std::string::npos)
      notes.push_back(fmt::format("{} has the same shape and is not changed", e.name));
  if (old_rows != new_rows)
    notes.push_back(
        "the model's config must say the new size (max_position_embeddings, n_positions, "
        "image_size ...)");
  return notes;
}

Json list_of(const std::vector<Index>& v) {
  Json list = Json::array();
  for (const Index n : v) list.push(Json(n));
  return list;
}

Json side(const std::vector<Index>& shape, const TableShape& s) {
  return Json::object({{"shape", list_of(shape)},
                       {"height", Json(s.height)},
                       {"width", Json(s.width)},
                       {"prefix", Json(s.prefix)},
                       {"suffix", Json(s.suffix)}});
}

}  // namespace

Report extend(const ExtendOptions& o, const Request& r) {
  if (std::filesystem::path(r.path).extension() != ".safetensors")
    throw UsageError("-o must be a file that ends in .safetensors, got \"" + r.path + "\"");
  const MappedFile file{std::filesystem::path(o.weights)};
  const SafetensorsIndex index = index_safetensors(file.bytes(), o.weights);
  const ExtendedRows x = extended_rows(index, o);
  const SafetensorsEntry& table = *x.table;
  std::vector<Index> shape = table.shape;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (x.order[i] == 't') shape[i] = x.to.rows();
    if (x.order[i] == 'y') shape[i] = x.to.height;
    if (x.order[i] == 'x') shape[i] = x.to.width;
  }
  std::vector<std::byte> stored(x.after.bytes.size());
  move_elements(x.order, shape, x.to, x.channels, static_cast<std::size_t>(size_of(x.dtype)),
                x.after.bytes.data(), stored.data(), false);
  replace_tensor(r.path, index, table.name, shape, stored, [&](Index done, Index total) {
    if (r.progress) r.progress("writing", done, total, {});
  });
  const std::vector<std::string> notes = notes_of(index, table, x.from, x.to);
  if (r.json) {
    Json list = Json::array();
    for (const std::string& n : notes) list.push(Json(n));
    const Json report =
        Json::object({{"schema", Json("posenc.extend/1")},
                      {"file", Json(o.weights)},
                      {"output", Json(r.path)},
                      {"tensor", Json(table.name)},
                      {"dtype", Json(table.dtype)},
                      {"how", Json(enum_text(x.how.how))},
                      {"from", side(table.shape, x.from)},
                      {"to", side(shape, x.to)},
                      {"tensors_copied", Json(static_cast<Index>(index.tensors.size()) - 1)},
                      {"notes", list}});
    return {.text = in_utf8(report).dump(2) + "\n"};
  }
  for (const std::string& n : notes) note(fmt::format("posenc: note: {}\n", n));
  return {.text = fmt::format("{} [{}] -> [{}], {}; {} other tensors copied\n", table.name,
                              fmt::join(table.shape, ", "), fmt::join(shape, ", "), o.how,
                              index.tensors.size() - 1)};
}

namespace {

Verb::Run declare_extend(Words& w) {
  auto o = std::make_shared<ExtendOptions>();
  w.text("WEIGHTS", o->weights, "", "a .safetensors file").required().file();
  add_table_words(w, *o, true);
  w.text("-o,--output", w.out.path, "F", "the new .safetensors file; no partial file is left")
      .required()
      .is_output = true;
  w.json();
  return [o](const Request& r) { return extend(*o, r); };
}

}  // namespace

const Verb extend_verb{
    "extend", "resize a learned position table in a weights file", &declare_extend,
    "All other tensors are copied bit for bit.\n"
    "Examples:\n"
    "  posenc extend bert.safetensors --tensor bert.embeddings.position_embeddings.weight \\\n"
    "    --to 2048 --how hierarchical -o longer.safetensors\n"
    "  posenc extend roberta.safetensors --tensor roberta.embeddings.position_embeddings.weight "
    "\\\n    --prefix 2 --to 1026 --how linear -o longer.safetensors\n"
    "  posenc extend vit.safetensors --tensor vit.embeddings.position_embeddings --prefix 1 \\\n"
    "    --to 24x24 --how bicubic -o larger.safetensors\n"
    "  posenc extend sam.safetensors --tensor image_encoder.pos_embed --to 32x48 --how bilinear "
    "-o o.safetensors"};

}  // namespace posenc::report
