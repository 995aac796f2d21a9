// SPDX-License-Identifier: Apache-2.0
// Formats of files, what is said of them, and colours.
#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <system_error>

#include "common.h"
#include "posenc/core/error.h"
#include "utf8.h"

namespace posenc::report {
namespace {

// The first line names the columns: NAME, or NAME_0, NAME_1, ... of a table.
std::string csv(const std::string& name, const Array& a) {
  if (a.shape.size() > 2)
    throw InputError("a .csv holds one or two axes; choose .npy or .safetensors for more");
  const std::vector<double> v = a.doubles();
  const Index columns = a.shape.size() == 2 ? a.shape[1] : 1;
  std::string text;
  if (a.shape.size() < 2)
    text = name + '\n';
  else
    for (Index i = 0; i < columns; ++i)
      text += fmt::format("{}_{}{}", name, i, i + 1 == columns ? '\n' : ',');
  for (std::size_t i = 0; i < v.size(); ++i) {
    // f32 and 16-bit values print as the shortest text of their own type.
    text += a.dtype == DType::f64 ? number_text(v[i]) : fmt::format("{}", static_cast<float>(v[i]));
    text += (static_cast<Index>(i) + 1) % columns == 0 ? '\n' : ',';
  }
  return text;
}

std::string paint(bool on, const char* code, std::string_view text) {
  return on ? fmt::format("\x1b[{}m{}\x1b[0m", code, text) : std::string(text);
}

}  // namespace

bool is_stdout(const std::string& path) {
  return path == "-" || path == "/dev/stdout";
}

std::string output_format(const Request& out, const char* known) {
  std::string ending = std::filesystem::path(out.path).extension().string();
  if (is_stdout(out.path)) {
    if (out.format.empty()) throw UsageError(fmt::format("-o - needs --format {}", known));
    return out.format;
  }
  if (ending.empty()) return out.format;
  ending.erase(0, 1);
  if (!out.format.empty() && out.format != ending)
    throw UsageError(fmt::format("--format {} contradicts -o {}", out.format, out.path));
  return ending;
}

std::string written_text(const std::string& schema, const std::string& path, const Arrays& arrays,
                         bool json) {
  Json shapes = Json::object();
  std::string text;
  for (const auto& [name, array] : arrays) {
    Json shape = Json::array();
    for (const Index n : array.shape) shape.push(Json(n));
    shapes.set(name, Json::object({{"dtype", posenc::dtype_name(array.dtype)}, {"shape", shape}}));
    text += fmt::format("{} {} {} [{}]", text.empty() ? ":" : ",", name,
                        posenc::dtype_name(array.dtype), fmt::join(array.shape, " x "));
  }
  if (!json) return path + text + "\n";
  return Json::object({{"schema", schema}, {"output", utf8(path)}, {"arrays", shapes}}).dump(2) +
         "\n";
}

std::string array_format(const Request& out) {
  const std::string format = output_format(out, "npy, safetensors or csv");
  if (format == "npy" || format == "safetensors" || format == "csv") return format;
  throw UsageError(fmt::format("the output must be .npy, .safetensors or .csv, got \"{}\"",
                               out.format.empty() ? out.path : out.format));
}

std::string picture_format(const Request& out) {
  const std::string format = output_format(out, "svg, html or png");
  if (format == "svg" || format == "html" || format == "png") return format;
  throw UsageError("the picture must be .svg, .html or .png, got \"" +
                   (out.format.empty() ? out.path : out.format) + "\"");
}

namespace {

// Whether a path is of the weights that lie beside a model's config, by the names that they have.
bool is_weights(const std::filesystem::path& path, const std::filesystem::path& model) {
  std::error_code none;
  if (model.empty() || !std::filesystem::exists(model, none) ||
      !std::filesystem::exists(path, none))
    return false;
  const std::string name = path.filename().string();
  const auto folder = [](const std::filesystem::path& p) {
    return p.empty() ? std::filesystem::path(".") : p;
  };
  return path.extension() == ".safetensors" &&
         (name.starts_with("model") || name.starts_with("consolidated")) &&
         std::filesystem::equivalent(
             folder(path.parent_path()),
             std::filesystem::is_directory(model, none) ? model : folder(model.parent_path()),
             none);
}

}  // namespace

void refuse_overwriting(const std::string& path, const std::vector<std::string>& inputs,
                        const std::string& model) {
  if (is_stdout(path)) return;
  if (is_weights(path, model))
    throw UsageError(fmt::format("-o {} holds weights of the model: name another", path));
  for (const std::string& input : inputs) {
    const std::string_view ending = ".safetensors:";
    const auto name = input.rfind(ending);
    const std::string file =
        name == std::string::npos ? input : input.substr(0, name + ending.size() - 1);
    std::error_code none;
    if (!file.empty() && std::filesystem::equivalent(path, file, none))
      throw UsageError(
          fmt::format("-o {} is the file that is read ({}): name another", path, input));
  }
}

std::vector<std::byte> bytes_of(const Arrays& arrays, const std::string& format) {
  if (format == "safetensors") return safetensors_bytes(arrays);
  if (arrays.size() != 1)
    throw UsageError(fmt::format("a .{} file holds one array, not {}; write .safetensors", format,
                                 arrays.size()));
  const auto& [name, a] = *arrays.begin();
  if (format == "npy") return npy_bytes(a);
  const std::string text = csv(name, a);
  const auto bytes = std::as_bytes(std::span(text.data(), text.size()));
  return {bytes.begin(), bytes.end()};
}

std::string Style::bold(std::string_view t) const {
  return paint(color, "1", t);
}
std::string Style::dim(std::string_view t) const {
  return paint(color, "2", t);
}
std::string Style::red(std::string_view t) const {
  return paint(color, "31", t);
}
std::string Style::yellow(std::string_view t) const {
  return paint(color, "33", t);
}
std::string Style::green(std::string_view t) const {
  return paint(color, "32", t);
}
std::string Style::cyan(std::string_view t) const {
  return paint(color, "36", t);
}

}  // namespace posenc::report
