"""Test cases of pipelines in SQL, so that they can be run where the pipelines are."""

from collections.abc import Sequence

from datp.archive.database import Database
from datp.archive.queries import queries


class PipelineTests:
    """The test cases of a database, each as JSON. Each method raises DatabaseError."""

    def __init__(self, database: Database) -> None:
        self._driver = database.driver
        self._queries = queries(database.driver.dialect)

    async def replace(self, pipeline: str, tests: Sequence[str]) -> None:
        """The pipeline has these test cases, and no others."""
        async with self._driver.writing() as connection:
            await connection.run(self._queries["delete_pipeline_tests"], pipeline=pipeline)
            for place, test in enumerate(tests, 1):
                await connection.run(self._queries["insert_pipeline_test"], pipeline=pipeline, place=place, test=test)

    async def of(self, pipeline: str) -> list[str]:
        """The pipeline's test cases, in their order."""
        async with self._driver.reading() as connection:
            rows = await connection.rows(self._queries["list_pipeline_tests"], pipeline=pipeline)
        return [row[0] for row in rows]
