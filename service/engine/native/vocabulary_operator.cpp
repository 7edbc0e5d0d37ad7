// What stands between `vocabulary.h` and ONNX Runtime. The first input of each operator: logits (rows, vocabulary).
//
// `trifold.Draw`: factors, top_k, top_p and min_p (rows), chances (rows, rounds, 2). Output: ids (rows).
// `trifold.LogTotal`: nothing more. Output: the logarithms of the sums of all exponentials (rows, 1).
// `trifold.Likeliest`: counts (rows), ranks (most), of which only the size is read. Outputs: logits and ids (rows, most).

#include "vocabulary.h"

#include <initializer_list>

#include "kernels.h"
#include "operators.h"

namespace trifold {
namespace {

constexpr ONNXTensorElementDataType kFloat = ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT;
constexpr ONNXTensorElementDataType kDouble = ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE;
constexpr ONNXTensorElementDataType kInteger = ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64;
constexpr size_t kLogits = 0;

// Reads an input of a given rank, and of as many rows as the logits have unless `rows` is negative.
template <typename T>
OrtStatus* Find(const OrtKernelContext* context, size_t place, size_t rank, int64_t rows, Shape* shape, const T** data) {
  const void* numbers;
  RETURN_IF_FAILED(Read(context, place, shape, &numbers));
  if (shape->rank != rank) return Invalid("trifold: an input has another rank");
  if (rows >= 0 && shape->sizes[0] != rows) return Invalid("trifold: an input has other rows than the logits");
  *data = static_cast<const T*>(numbers);
  return nullptr;
}

OrtStatus* FindLogits(const OrtKernelContext* context, Logits* logits) {
  Shape shape;
  RETURN_IF_FAILED(Find(context, kLogits, 2, -1, &shape, &logits->data));
  logits->rows = shape.sizes[0], logits->vocab_size = shape.sizes[1];
  return logits->vocab_size < 1 ? Invalid("trifold: there are no tokens") : nullptr;
}

template <typename T>
OrtStatus* Make(OrtKernelContext* context, size_t place, const Shape& shape, T** data) {
  void* numbers;
  RETURN_IF_FAILED(Write(context, place, shape, &numbers));
  *data = static_cast<T*>(numbers);
  return nullptr;
}

OrtStatus* ComputeDraw(void*, OrtKernelContext* context) {
  Logits logits;
  Draw draw;
  Shape shape;
  RETURN_IF_FAILED(FindLogits(context, &logits));
  RETURN_IF_FAILED(Find(context, 1, 1, logits.rows, &shape, &draw.factors));
  RETURN_IF_FAILED(Find(context, 2, 1, logits.rows, &shape, &draw.top_k));
  RETURN_IF_FAILED(Find(context, 3, 1, logits.rows, &shape, &draw.top_p));
  RETURN_IF_FAILED(Find(context, 4, 1, logits.rows, &shape, &draw.min_p));
  RETURN_IF_FAILED(Make(context, 0, shape, &draw.ids));
  RETURN_IF_FAILED(Find(context, 5, 3, logits.rows, &shape, &draw.chances));
  if (shape.sizes[1] < 1 || shape.sizes[2] != 2) return Invalid("trifold.Draw: chances come in twos");
  draw.rounds = shape.sizes[1];
  if (logits.rows > 0) FindKernels()->draw(logits, draw, Workers(context));
  return nullptr;
}

OrtStatus* ComputeLogTotal(void*, OrtKernelContext* context) {
  Logits logits;
  double* totals;
  RETURN_IF_FAILED(FindLogits(context, &logits));
  RETURN_IF_FAILED(Make(context, 0, Shape{{logits.rows, 1}, 2}, &totals));
  if (logits.rows > 0) FindKernels()->log_totals(logits, totals, Workers(context));
  return nullptr;
}

OrtStatus* ComputeLikeliest(void*, OrtKernelContext* context) {
  Logits logits;
  Likeliest wanted;
  Shape shape;
  const int64_t* ranks;
  RETURN_IF_FAILED(FindLogits(context, &logits));
  RETURN_IF_FAILED(Find(context, 1, 1, logits.rows, &shape, &wanted.counts));
  RETURN_IF_FAILED(Find(context, 2, 1, -1, &shape, &ranks));
  wanted.most = shape.sizes[0];
  for (int64_t row = 0; row < logits.rows; ++row)
    if (wanted.counts[row] > wanted.most) return Invalid("trifold.Likeliest: a row has more than there are ranks");
  RETURN_IF_FAILED(Make(context, 0, Shape{{logits.rows, wanted.most}, 2}, &wanted.logits));
  RETURN_IF_FAILED(Make(context, 1, Shape{{logits.rows, wanted.most}, 2}, &wanted.ids));
  if (logits.rows > 0) FindKernels()->find_likeliest(logits, wanted, Workers(context));
  return nullptr;
}

// An operator without attributes, and so without a state.
template <size_t Inputs, size_t Outputs>
OrtCustomOp Stateless() {
  OrtCustomOp one = Operator();
  one.GetInputTypeCount = [](const OrtCustomOp*) { return Inputs; };
  one.GetOutputTypeCount = [](const OrtCustomOp*) { return Outputs; };
  one.GetInputCharacteristic = [](const OrtCustomOp*, size_t) { return INPUT_OUTPUT_REQUIRED; };
  one.CreateKernelV2 = [](const OrtCustomOp*, const OrtApi*, const OrtKernelInfo*, void** created) -> OrtStatus* {
    *created = nullptr;
    return nullptr;
  };
  one.KernelDestroy = [](void*) {};
  return one;
}

}  // namespace

OrtCustomOp DrawOperator() {
  OrtCustomOp one = Stateless<6, 1>();
  one.GetName = [](const OrtCustomOp*) { return "Draw"; };
  one.GetInputType = [](const OrtCustomOp*, size_t place) {
    constexpr ONNXTensorElementDataType kTypes[] = {kFloat, kFloat, kInteger, kDouble, kFloat, kDouble};
    return kTypes[place];
  };
  one.GetOutputType = [](const OrtCustomOp*, size_t) { return kInteger; };
  one.KernelComputeV2 = ComputeDraw;
  return one;
}

OrtCustomOp LogTotalOperator() {
  OrtCustomOp one = Stateless<1, 1>();
  one.GetName = [](const OrtCustomOp*) { return "LogTotal"; };
  one.GetInputType = [](const OrtCustomOp*, size_t) { return kFloat; };
  one.GetOutputType = [](const OrtCustomOp*, size_t) { return kDouble; };
  one.KernelComputeV2 = ComputeLogTotal;
  return one;
}

OrtCustomOp LikeliestOperator() {
  OrtCustomOp one = Stateless<3, 2>();
  one.GetName = [](const OrtCustomOp*) { return "Likeliest"; };
  one.GetInputType = [](const OrtCustomOp*, size_t place) { return place == kLogits ? kFloat : kInteger; };
  one.GetOutputType = [](const OrtCustomOp*, size_t place) { return place == 0 ? kFloat : kInteger; };
  one.KernelComputeV2 = ComputeLikeliest;
  return one;
}

}  // namespace trifold
