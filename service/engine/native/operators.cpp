// Trifold's operators for ONNX Runtime: `trifold.Linear`, which `graph.py` puts in the place of several others.
//
// Inputs: x (..., depth), and the constants weights, scales, offsets and, maybe, bias of `linear.h`.
// Output: (..., columns).

#include <memory>

#include "linear.h"
#include "onnxruntime/onnxruntime_c_api.h"

#ifdef _WIN32
#define EXPORTED __declspec(dllexport)
#else
#define EXPORTED __attribute__((visibility("default")))
#endif

#define RETURN_IF_FAILED(expression) \
  if (OrtStatus* status = (expression)) return status

namespace {

constexpr uint32_t kApiVersion = 18;  // the oldest that has all that is called here
constexpr size_t kMostDimensions = 8;
enum Input : size_t { kX, kWeights, kScales, kOffsets, kBias, kInputs };

const OrtApi* api;

struct Workers : trifold::Threads {
  explicit Workers(const OrtKernelContext* context) : context(context) {}

  void ForEach(size_t count, void (*run)(void*, size_t), void* data) const override {
    if (count == 1) return run(data, 0);
    OrtStatus* status = api->KernelContext_ParallelFor(context, run, count, 0, data);
    if (status == nullptr) return;
    api->ReleaseStatus(status);  // it has not begun
    for (size_t i = 0; i < count; ++i) run(data, i);
  }

  const OrtKernelContext* context;
};

struct Kernel {
  trifold::Linear linear{};
  OrtMemoryInfo* memory = nullptr;

  ~Kernel() {
    if (memory != nullptr) api->ReleaseMemoryInfo(memory);
  }
};

OrtStatus* Invalid(const char* message) { return api->CreateStatus(ORT_INVALID_ARGUMENT, message); }

// Points at a constant's numbers, of which there must be so many; they are the session's, which outlives its kernels.
template <typename T>
OrtStatus* Find(const OrtKernelInfo* info, Input place, int64_t count, const T** data) {
  int is_constant = 0;
  const OrtValue* value = nullptr;
  RETURN_IF_FAILED(api->KernelInfoGetConstantInput_tensor(info, place, &is_constant, &value));
  if (!is_constant || value == nullptr) return Invalid("trifold.Linear: an input is no constant");
  OrtTensorTypeAndShapeInfo* shape;
  size_t found;
  RETURN_IF_FAILED(api->GetTensorTypeAndShape(value, &shape));
  OrtStatus* status = api->GetTensorShapeElementCount(shape, &found);
  api->ReleaseTensorTypeAndShapeInfo(shape);
  RETURN_IF_FAILED(status);
  if (static_cast<int64_t>(found) != count) return Invalid("trifold.Linear: a constant has another size");
  void* address;
  RETURN_IF_FAILED(api->GetTensorMutableData(const_cast<OrtValue*>(value), &address));
  *data = static_cast<const T*>(address);
  return nullptr;
}

OrtStatus* Create(const OrtCustomOp*, const OrtApi*, const OrtKernelInfo* info, void** created) {
  auto kernel = std::make_unique<Kernel>();
  trifold::Linear& linear = kernel->linear;
  int64_t zero_point, by_rows;
  RETURN_IF_FAILED(api->KernelInfoGetAttribute_int64(info, "depth", &linear.depth));
  RETURN_IF_FAILED(api->KernelInfoGetAttribute_int64(info, "columns", &linear.columns));
  RETURN_IF_FAILED(api->KernelInfoGetAttribute_float(info, "step", &linear.step));
  RETURN_IF_FAILED(api->KernelInfoGetAttribute_int64(info, "zero_point", &zero_point));
  RETURN_IF_FAILED(api->KernelInfoGetAttribute_int64(info, "by_rows", &by_rows));
  if (linear.depth < 1 || linear.columns < 1) return Invalid("trifold.Linear: depth and columns are 1 at least");
  linear.zero_point = static_cast<int32_t>(zero_point);
  linear.by_rows = by_rows != 0;

  const int64_t padded = linear.Panels() * trifold::kPanelColumns;
  const int64_t numbers = padded * linear.Groups() * trifold::kGroup;
  RETURN_IF_FAILED(Find(info, kWeights, numbers, &linear.weights));
  RETURN_IF_FAILED(Find(info, kScales, padded, &linear.scales));
  RETURN_IF_FAILED(Find(info, kOffsets, padded, &linear.offsets));
  size_t inputs;
  RETURN_IF_FAILED(api->KernelInfo_GetInputCount(info, &inputs));
  if (inputs > kBias) RETURN_IF_FAILED(Find(info, kBias, linear.columns, &linear.bias));
  RETURN_IF_FAILED(api->CreateCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault, &kernel->memory));
  *created = kernel.release();
  return nullptr;
}

OrtStatus* Shape(const OrtValue* value, int64_t* dimensions, size_t* rank) {
  OrtTensorTypeAndShapeInfo* info;
  RETURN_IF_FAILED(api->GetTensorTypeAndShape(value, &info));
  OrtStatus* status = api->GetDimensionsCount(info, rank);
  if (status == nullptr && (*rank == 0 || *rank > kMostDimensions))
    status = Invalid("trifold.Linear takes one to eight dimensions");
  if (status == nullptr) status = api->GetDimensions(info, dimensions, *rank);
  api->ReleaseTensorTypeAndShapeInfo(info);
  return status;
}

OrtStatus* Compute(void* created, OrtKernelContext* context) {
  const Kernel& kernel = *static_cast<const Kernel*>(created);
  const trifold::Linear& linear = kernel.linear;
  const OrtValue* input;
  void* x;
  RETURN_IF_FAILED(api->KernelContext_GetInput(context, kX, &input));
  RETURN_IF_FAILED(api->GetTensorMutableData(const_cast<OrtValue*>(input), &x));
  int64_t dimensions[kMostDimensions];
  size_t rank;
  RETURN_IF_FAILED(Shape(input, dimensions, &rank));
  if (dimensions[rank - 1] != linear.depth) return Invalid("trifold.Linear: rows have another length");
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < rank; ++i) rows *= dimensions[i];
  dimensions[rank - 1] = linear.columns;
  OrtValue* output;
  void* y;
  RETURN_IF_FAILED(api->KernelContext_GetOutput(context, 0, dimensions, rank, &output));
  RETURN_IF_FAILED(api->GetTensorMutableData(output, &y));
  if (rows == 0) return nullptr;

  OrtAllocator* allocator;
  void* scratch;
  RETURN_IF_FAILED(api->KernelContext_GetAllocator(context, kernel.memory, &allocator));
  OrtStatus* status = api->AllocatorAlloc(allocator, trifold::ScratchBytes(linear, rows), &scratch);
  if (status == nullptr) {
    trifold::Multiply(linear, static_cast<const float*>(x), rows, static_cast<float*>(y), scratch, Workers(context));
    status = api->AllocatorFree(allocator, scratch);
  }
  api->ReleaseAllocator(allocator);
  return status;
}

ONNXTensorElementDataType InputType(const OrtCustomOp*, size_t place) {
  if (place == kWeights) return ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8;
  return place == kOffsets ? ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32 : ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT;
}

OrtCustomOp LinearOperator() {
  OrtCustomOp linear{};
  linear.version = kApiVersion;
  linear.GetName = [](const OrtCustomOp*) { return "Linear"; };
  linear.GetExecutionProviderType = [](const OrtCustomOp*) { return "CPUExecutionProvider"; };
  linear.GetInputTypeCount = [](const OrtCustomOp*) -> size_t { return kInputs; };
  linear.GetInputType = InputType;
  linear.GetInputCharacteristic = [](const OrtCustomOp*, size_t place) {
    return place == kBias ? INPUT_OUTPUT_OPTIONAL : INPUT_OUTPUT_REQUIRED;
  };
  linear.GetInputMemoryType = [](const OrtCustomOp*, size_t) { return OrtMemTypeDefault; };
  linear.GetOutputTypeCount = [](const OrtCustomOp*) -> size_t { return 1; };
  linear.GetOutputType = [](const OrtCustomOp*, size_t) { return ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT; };
  linear.GetOutputCharacteristic = [](const OrtCustomOp*, size_t) { return INPUT_OUTPUT_REQUIRED; };
  linear.CreateKernelV2 = Create;
  linear.KernelComputeV2 = Compute;
  linear.KernelDestroy = [](void* kernel) { delete static_cast<Kernel*>(kernel); };
  linear.GetStartVersion = [](const OrtCustomOp*) { return 1; };
  linear.GetEndVersion = [](const OrtCustomOp*) { return 1; };
  return linear;
}

OrtStatus* MakeDomain(OrtCustomOpDomain** domain) {
  static const OrtCustomOp linear = LinearOperator();
  RETURN_IF_FAILED(api->CreateCustomOpDomain("trifold", domain));
  return api->CustomOpDomain_Add(*domain, &linear);
}

}  // namespace

// What ONNX Runtime calls when it is given this library; fails where the processor has not what the operators need.
extern "C" EXPORTED OrtStatus* RegisterCustomOps(OrtSessionOptions* options, const OrtApiBase* base) {
  static const OrtApi* const found = api = base->GetApi(kApiVersion);
  if (found == nullptr) return nullptr;  // an ONNX Runtime older than any that Trifold runs with; it knows no operator
  if (!trifold::IsSupported()) return api->CreateStatus(ORT_NOT_IMPLEMENTED, "the processor has no AVX-512 VNNI");
  static OrtCustomOpDomain* domain = nullptr;  // of the process: sessions refer to it for as long as they live
  static OrtStatus* const failure = MakeDomain(&domain);
  if (failure != nullptr) return api->CreateStatus(ORT_FAIL, "the operators' domain could not be made");
  return api->AddCustomOpDomain(options, domain);
}
