// Our operators for ONNX Runtime, which `graph.py` puts in the place of its own.

#include "operators.h"

#include "kernels.h"

#ifdef _WIN32
#define EXPORTED __declspec(dllexport)
#else
#define EXPORTED __attribute__((visibility("default")))
#endif

namespace trifold {

const OrtApi* api;

void Workers::ForEach(size_t count, void (*run)(void*, size_t), void* data) const {
  if (count == 1) return run(data, 0);
  OrtStatus* status = api->KernelContext_ParallelFor(context, run, count, 0, data);
  if (status == nullptr) return;
  api->ReleaseStatus(status);  // it has not begun
  for (size_t i = 0; i < count; ++i) run(data, i);
}

OrtStatus* Invalid(const char* message) { return api->CreateStatus(ORT_INVALID_ARGUMENT, message); }

OrtStatus* Read(const OrtValue* value, Shape* shape, const void** data) {
  OrtTensorTypeAndShapeInfo* info;
  RETURN_IF_FAILED(api->GetTensorTypeAndShape(value, &info));
  OrtStatus* status = api->GetDimensionsCount(info, &shape->rank);
  if (status == nullptr && shape->rank > kMostDimensions) status = Invalid("our operators take eight dimensions");
  if (status == nullptr) status = api->GetDimensions(info, shape->sizes, shape->rank);
  api->ReleaseTensorTypeAndShapeInfo(info);
  RETURN_IF_FAILED(status);
  void* address;
  RETURN_IF_FAILED(api->GetTensorMutableData(const_cast<OrtValue*>(value), &address));
  *data = address;
  return nullptr;
}

OrtStatus* Read(const OrtKernelContext* context, size_t place, Shape* shape, const void** data) {
  const OrtValue* value;
  RETURN_IF_FAILED(api->KernelContext_GetInput(context, place, &value));
  return Read(value, shape, data);
}

OrtStatus* Write(OrtKernelContext* context, size_t place, const Shape& shape, void** data) {
  OrtValue* value;
  RETURN_IF_FAILED(api->KernelContext_GetOutput(context, place, shape.sizes, shape.rank, &value));
  return api->GetTensorMutableData(value, data);
}

OrtCustomOp Operator() {
  OrtCustomOp one{};
  one.version = kApiVersion;
  one.GetExecutionProviderType = [](const OrtCustomOp*) { return "CPUExecutionProvider"; };
  one.GetInputMemoryType = [](const OrtCustomOp*, size_t) { return OrtMemTypeDefault; };
  one.GetOutputCharacteristic = [](const OrtCustomOp*, size_t) { return INPUT_OUTPUT_REQUIRED; };
  one.GetStartVersion = [](const OrtCustomOp*) { return 1; };
  one.GetEndVersion = [](const OrtCustomOp*) { return 1; };
  return one;
}

namespace {

OrtStatus* MakeDomain(OrtCustomOpDomain** domain) {
  static const OrtCustomOp operators[] = {LinearOperator(), AttentionOperator(false), AttentionOperator(true),
                                          RaggedAttentionOperator(), DrawOperator(),       LogTotalOperator(),
                                          LikeliestOperator()};
  RETURN_IF_FAILED(api->CreateCustomOpDomain("trifold", domain));
  for (const OrtCustomOp& one : operators) RETURN_IF_FAILED(api->CustomOpDomain_Add(*domain, &one));
  return nullptr;
}

}  // namespace
}  // namespace trifold

// The names of the processor's instructions that operators use, for a log; null if it has none for them.
extern "C" EXPORTED const char* TrifoldInstructions() {
  const trifold::Kernels* const kernels = trifold::FindKernels();
  return kernels == nullptr ? nullptr : kernels->instructions;
}

// What ONNX Runtime calls when it is given this library; fails where the processor has not what the operators need.
extern "C" EXPORTED OrtStatus* RegisterCustomOps(OrtSessionOptions* options, const OrtApiBase* base) {
  using namespace trifold;
  static const OrtApi* const found = api = base->GetApi(kApiVersion);
  if (found == nullptr) return nullptr;  // an ONNX Runtime older than any that Trifold runs with; it knows no operator
  if (FindKernels() == nullptr)
    return api->CreateStatus(ORT_NOT_IMPLEMENTED, "the processor has neither AVX2 nor NEON's dot products");
  static OrtCustomOpDomain* domain = nullptr;  // of the process: sessions refer to it for as long as they live
  static OrtStatus* const failure = MakeDomain(&domain);
  if (failure != nullptr) return api->CreateStatus(ORT_FAIL, "the operators' domain could not be made");
  return api->AddCustomOpDomain(options, domain);
}
