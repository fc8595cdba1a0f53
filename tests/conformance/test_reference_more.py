from kernelkeep.testing import ExecutorTests, StrategyTests, VariantTests
class TestExecutor(ExecutorTests):
    backend = "reference"
class TestStrategies(StrategyTests):
    backend = "reference"
class TestVariants(VariantTests):
    backend = "reference"
